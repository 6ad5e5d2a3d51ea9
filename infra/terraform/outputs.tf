# What the caller needs next. `settings` is the part of hotspare.toml that says the same: terraform output -raw settings.

data "aws_region" "current" {}

locals {
  role_lines = [
    for role, made in aws_iam_role.worker : "${role} = { role_arn = \"${made.arn}\" }" if !var.observe_only || role == "observe"
  ]
  store_lines = var.host_memory == "sqlite" ? [] : ["", "[store]", "memory = \"dynamodb\"", "table = \"${local.memory_table}\""]
  evidence_lines = var.evidence_bucket == null ? [] : concat(
    ["", "[evidence]", "bucket = \"${var.evidence_bucket}\"", "prefix = \"${var.evidence_prefix}\""],
    var.evidence_kms_key_arn == null ? [] : ["kms_key = \"${var.evidence_kms_key_arn}\""],
  )
  access_lines = !var.run_command ? [] : concat(
    ["", "[access]", "kind = \"ssm\""],
    ["", "[access.ssm]"],
    ["document = \"${aws_ssm_document.node["node"].name}\"", "look_document = \"${aws_ssm_document.node["node-look"].name}\""],
    var.run_command_bucket == null ? [] : ["bucket = \"${var.run_command_bucket}\"", "prefix = \"${var.run_command_prefix}\""],
  )
  kubernetes_lines = var.eks_cluster == null ? [] : [
    "", "[kubernetes]", "source = \"eks\"", "eks_cluster = \"${var.eks_cluster}\"", "namespace = \"${var.eks_namespace}\"",
  ]
}

output "settings" {
  description = "Lines for hotspare.toml."
  value = join("\n", concat(
    ["[cluster]", "name = \"${var.cluster}\"", "", "[aws]", "region = \"${data.aws_region.current.name}\"", "", "[aws.roles]"],
    local.role_lines,
    local.store_lines,
    local.evidence_lines,
    local.access_lines,
    ["", "[intake]", "event_queue = \"${aws_sqs_queue.events.url}\""],
    local.kubernetes_lines,
    [""],
  ))
}

output "role_arns" {
  description = "ARN of each worker role."
  value       = { for role, made in aws_iam_role.worker : role => made.arn }
}

output "host_role_arn" {
  description = "ARN of the role of the machine that runs Hotspare."
  value       = aws_iam_role.host.arn
}

output "may_become" {
  description = "Worker roles that the machine that runs Hotspare may become."
  value       = sort(keys(local.becomes))
}

output "instance_profile" {
  description = "Instance profile for the machine that runs Hotspare."
  value       = aws_iam_instance_profile.host.name
}

output "event_queue_url" {
  description = "Queue of what AWS tells about instances."
  value       = aws_sqs_queue.events.url
}

output "unhandled_queue_url" {
  description = "Queue of messages that could not be handled: look into it when it is not empty."
  value       = aws_sqs_queue.unhandled.url
}

output "memory_table" {
  description = "DynamoDB table of host memory; null where it is a file."
  value       = var.host_memory == "sqlite" ? null : local.memory_table
}

output "people_policy_arn" {
  description = "Policy to attach to people who read and correct the ledger; null where host memory is a file."
  value       = one([for policy in aws_iam_policy.people : policy.arn])
}

output "node_output_policy_arn" {
  description = "Policy to attach to the role in the nodes' instance profile, which lets them write long outputs of Run Command; null without a bucket."
  value       = one(aws_iam_policy.node_output[*].arn)
}

output "security_group_id" {
  description = "Security group of machines that run Hotspare; null without a VPC."
  value       = one(aws_security_group.host[*].id)
}

output "spare_group" {
  description = "Name of the Auto Scaling group of spares; null without one."
  value       = one(aws_autoscaling_group.spares[*].name)
}
