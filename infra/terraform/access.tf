# Node access by Run Command (access.kind = "ssm"): the two documents that the roles may send, and nothing else. The nodes have
# Hotspare installed in /opt/hotspare, an SSM Agent, and AmazonSSMManagedInstanceCore in their own instance profile.

locals {
  # The files of ../ssm are made from the table of commands that a node runs by name.
  documents = var.run_command ? {
    for file in fileset("${path.module}/../ssm", "*.json") :
    replace(trimsuffix(file, ".json"), "hotspare-", "") => file("${path.module}/../ssm/${file}")
  } : {}

  run_command_policies = var.run_command ? {
    for file in fileset("${path.module}/../iam/run_command", "*.json") :
    trimsuffix(file, ".json") => replace(file("${path.module}/../iam/run_command/${file}"), "CLUSTER", var.cluster)
  } : {}

  output_bucket_arn = var.run_command_bucket == null ? null : "arn:${data.aws_partition.current.partition}:s3:::${var.run_command_bucket}"
}

resource "aws_ssm_document" "node" {
  for_each = local.documents

  name            = "${local.name}-${each.key}"
  document_type   = "Command"
  document_format = "JSON"
  target_type     = "/AWS::EC2::Instance"
  content         = each.value
  tags            = local.tags
}

resource "aws_iam_role_policy" "run_command" {
  for_each = local.run_command_policies

  name   = "run-command"
  role   = aws_iam_role.worker[each.key].id
  policy = each.value
}

# Outputs of more than 24,000 characters, where the caller names a bucket: the nodes write them, the roles read them.
resource "aws_iam_role_policy" "run_command_output" {
  for_each = var.run_command_bucket == null ? {} : local.run_command_policies

  name = "run-command-output"
  role = aws_iam_role.worker[each.key].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "NameTheBucket"
        Effect   = "Allow"
        Action   = ["ssm:SendCommand"]
        Resource = local.output_bucket_arn
      },
      {
        Sid      = "ReadOutputs"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = "${local.output_bucket_arn}/${var.run_command_prefix}/*"
      },
    ]
  })
}

resource "aws_iam_policy" "node_output" {
  count = var.run_command && var.run_command_bucket != null ? 1 : 0

  name        = "${local.name}-node-output"
  description = "For the instance profile of the nodes of cluster ${var.cluster}: write outputs of Run Command to the bucket."
  tags        = local.tags
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "WriteOutputs"
      Effect   = "Allow"
      Action   = ["s3:PutObject"]
      Resource = "${local.output_bucket_arn}/${var.run_command_prefix}/*"
    }]
  })
}
