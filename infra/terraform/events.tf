# What AWS tells about instances, into one queue: EventBridge rules, the queue, and where messages go that cannot be handled.
#
# Events are hints. Hotspare looks before it acts, and drops what concerns no instance of the cluster: EventBridge cannot match tags.

locals {
  rules = merge(
    {
      state = {
        about = "Instances that stop, or are gone."
        pattern = {
          source      = ["aws.ec2"]
          detail-type = ["EC2 Instance State-change Notification"]
          detail      = { state = ["stopped", "terminated"] }
        }
      }
      interruption = {
        about = "Capacity that AWS takes back within minutes."
        pattern = {
          source = ["aws.ec2"]
          detail-type = [
            "EC2 Spot Instance Interruption Warning",
            "EC2 Capacity Reservation Instance Interruption Warning",
          ]
        }
      }
      # AWS' pages differ in the names of these two events: both are matched.
      capacity-block = {
        about = "Capacity Blocks that begin and end."
        pattern = {
          source = ["aws.ec2"]
          detail-type = [
            "Capacity Block Delivered", "Capacity Block Reservation Delivered",
            "Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning",
          ]
        }
      }
      health = {
        about = "Scheduled maintenance, retirement and degraded hardware."
        pattern = {
          source      = ["aws.health"]
          detail-type = ["AWS Health Event"]
          detail = {
            service           = ["EC2"]
            eventTypeCategory = ["issue", "scheduledChange"]
            eventScopeCode    = ["ACCOUNT_SPECIFIC"]
          }
        }
      }
    },
    length(var.auto_scaling_groups) == 0 ? {} : {
      auto-scaling = {
        about = "Instances that an Auto Scaling group replaces."
        pattern = {
          source = ["aws.autoscaling"]
          detail-type = [
            "EC2 Instance Launch Successful", "EC2 Instance Launch Unsuccessful",
            "EC2 Instance Terminate Successful", "EC2 Instance Terminate Unsuccessful",
          ]
          detail = { AutoScalingGroupName = var.auto_scaling_groups }
        }
      }
    },
    var.hyperpod_cluster_arn == null ? {} : {
      hyperpod = {
        about = "Nodes that HyperPod calls unhealthy, or repairs."
        pattern = {
          source      = ["aws.sagemaker"]
          detail-type = ["SageMaker HyperPod Cluster Event", "SageMaker HyperPod Cluster Node Health Event"]
          resources   = [var.hyperpod_cluster_arn]
        }
      }
    },
  )

  # Queue and rule names take no dots.
  event_name = "${replace(local.name, ".", "-")}-events"
}

resource "aws_sqs_queue" "events" {
  name                       = local.event_name
  visibility_timeout_seconds = 60     # longer than one message is worked on
  message_retention_seconds  = 345600 # four days: a long weekend
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true
  tags                       = merge(local.tags, { "hotspare:cluster" = var.cluster }) # by it the intake's policy knows the queue

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.unhandled.arn
    maxReceiveCount     = 10
  })
}

resource "aws_sqs_queue" "unhandled" {
  name                      = "${local.event_name}-unhandled"
  message_retention_seconds = 1209600 # the longest that SQS keeps: a person has to look
  sqs_managed_sse_enabled   = true
  tags                      = local.tags
}

data "aws_iam_policy_document" "events" {
  statement {
    sid       = "RulesOfThisClusterSend"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.events.arn]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [for rule in aws_cloudwatch_event_rule.events : rule.arn]
    }
  }

  statement {
    sid       = "NothingInTheClear"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.events.arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "events" {
  queue_url = aws_sqs_queue.events.id
  policy    = data.aws_iam_policy_document.events.json
}

resource "aws_cloudwatch_event_rule" "events" {
  for_each = local.rules

  name          = "${local.event_name}-${each.key}"
  description   = each.value.about
  event_pattern = jsonencode(each.value.pattern)
  tags          = local.tags
}

resource "aws_cloudwatch_event_target" "events" {
  for_each = local.rules

  rule      = aws_cloudwatch_event_rule.events[each.key].name
  target_id = "queue"
  arn       = aws_sqs_queue.events.arn
}
