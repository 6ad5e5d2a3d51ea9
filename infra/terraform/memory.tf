# Host memory in DynamoDB: strikes, bans, freezes and closed incidents, which outlive every workflow. The keys are those of
# activities/memory_table.py.

locals {
  memory_table = coalesce(var.memory_table, "${local.name}-memory")

  # The files of ../iam/memory have TABLE where the table's name belongs. The one for people is a policy to attach where you wish.
  memory_policies = var.host_memory == "sqlite" ? {} : {
    for file in fileset("${path.module}/../iam/memory", "*.json") :
    trimsuffix(file, ".json") => replace(file("${path.module}/../iam/memory/${file}"), "TABLE", local.memory_table)
  }
}

resource "aws_dynamodb_table" "memory" {
  count = var.host_memory == "dynamodb" ? 1 : 0

  name                        = local.memory_table
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = var.memory_deletion_protection
  tags                        = local.tags

  dynamic "attribute" {
    for_each = toset(["pk", "sk", "kind", "at"])

    content {
      name = attribute.value
      type = "S"
    }
  }

  global_secondary_index {
    name            = "by-time"
    hash_key        = "kind"
    range_key       = "at"
    projection_type = "ALL"
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }
}

resource "aws_iam_role_policy" "memory" {
  for_each = { for role, policy in local.memory_policies : role => policy if contains(keys(local.policies), role) }

  name   = "host-memory"
  role   = aws_iam_role.worker[each.key].id
  policy = each.value
}

resource "aws_iam_policy" "people" {
  for_each = { for role, policy in local.memory_policies : role => policy if role == "people" }

  name        = "${local.name}-memory-people"
  description = "What people do with the ledger of cluster ${var.cluster}: hotspare ledger, replay, status, doctor."
  policy      = each.value
  tags        = local.tags
}
