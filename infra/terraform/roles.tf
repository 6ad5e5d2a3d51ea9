# One IAM role for each worker role, with the policy of that name in ../iam, and one for the machine that runs Hotspare, which may
# do nothing but become these.

data "aws_partition" "current" {}

locals {
  name = "hotspare-${var.cluster}"
  tags = merge(var.tags, { "hotspare:managed-by" = "terraform" })

  # The files of ../iam are made from one table, with CLUSTER where the cluster's name belongs.
  policies = {
    for file in fileset("${path.module}/../iam", "*.json") :
    trimsuffix(file, ".json") => replace(file("${path.module}/../iam/${file}"), "CLUSTER", var.cluster)
  }

  becomes = var.observe_only ? { observe = aws_iam_role.worker["observe"].arn } : { for role, made in aws_iam_role.worker : role => made.arn }
}

data "aws_iam_policy_document" "worker_trust" {
  statement {
    sid     = "HotspareBecomesItsRoles"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = concat([aws_iam_role.host.arn], var.trusted_principals)
    }
  }
}

resource "aws_iam_role" "worker" {
  for_each = local.policies

  name                 = "${local.name}-${each.key}"
  description          = "Hotspare, cluster ${var.cluster}, worker role ${each.key}."
  assume_role_policy   = data.aws_iam_policy_document.worker_trust.json
  permissions_boundary = var.permissions_boundary
  tags                 = local.tags
}

resource "aws_iam_role_policy" "worker" {
  for_each = local.policies

  name   = "hotspare"
  role   = aws_iam_role.worker[each.key].id
  policy = each.value
}

data "aws_iam_policy_document" "host_trust" {
  statement {
    sid     = "InstancesOfEc2"
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.${data.aws_partition.current.dns_suffix}"]
    }
  }

  dynamic "statement" {
    for_each = var.eks_cluster == null ? [] : [var.eks_cluster]

    content {
      sid     = "PodsOfEks"
      actions = ["sts:AssumeRole", "sts:TagSession"]

      principals {
        type        = "Service"
        identifiers = ["pods.eks.amazonaws.com"]
      }
    }
  }
}

resource "aws_iam_role" "host" {
  name                 = local.name
  description          = "The machine or pod that runs Hotspare for cluster ${var.cluster}."
  assume_role_policy   = data.aws_iam_policy_document.host_trust.json
  permissions_boundary = var.permissions_boundary
  tags                 = local.tags
}

resource "aws_iam_role_policy" "host" {
  name = "become-worker-roles"
  role = aws_iam_role.host.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "BecomeWorkerRoles"
      Effect   = "Allow"
      Action   = ["sts:AssumeRole"]
      Resource = values(local.becomes)
    }]
  })
}

resource "aws_iam_instance_profile" "host" {
  name = local.name
  role = aws_iam_role.host.name
  tags = local.tags
}

# Bundles of evidence in S3, where the caller names a bucket.
resource "aws_iam_role_policy" "evidence" {
  count = var.evidence_bucket == null ? 0 : 1

  name = "evidence"
  role = aws_iam_role.worker["ssh"].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Sid      = "EvidenceBundles"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject"]
        Resource = "arn:${data.aws_partition.current.partition}:s3:::${var.evidence_bucket}/${var.evidence_prefix}*"
      }],
      var.evidence_kms_key_arn == null ? [] : [{
        Sid      = "EvidenceKey"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource = var.evidence_kms_key_arn
      }],
    )
  })
}

# Launching spares and ending retired nodes, where the caller allows it.
resource "aws_iam_role_policy" "provisioning" {
  count = var.launch_spares ? 1 : 0

  name   = "provisioning"
  role   = aws_iam_role.worker["aws"].id
  policy = replace(file("${path.module}/../iam/provisioning/aws.json"), "CLUSTER", var.cluster)
}

resource "aws_iam_role_policy" "launched" {
  count = var.launch_spares && length(var.launched_role_arns) > 0 ? 1 : 0

  name = "launched"
  role = aws_iam_role.worker["aws"].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "GiveInstancesTheirRole"
      Effect    = "Allow"
      Action    = ["iam:PassRole"]
      Resource  = var.launched_role_arns
      Condition = { StringLike = { "iam:PassedToService" = "ec2.amazonaws.com*" } }
    }]
  })
}

# The one HyperPod cluster, where the caller names it.
resource "aws_iam_role_policy" "hyperpod" {
  for_each = var.hyperpod_cluster_arn == null ? {} : {
    for file in fileset("${path.module}/../iam/hyperpod", "*.json") :
    trimsuffix(file, ".json") => replace(file("${path.module}/../iam/hyperpod/${file}"), "HYPERPOD_CLUSTER_ARN", var.hyperpod_cluster_arn)
  }

  name   = "hyperpod"
  role   = aws_iam_role.worker[each.key].id
  policy = each.value
}
