# A group of spares, where the caller asks for one. It only keeps the number: what is unhealthy is Hotspare's to judge, so the group
# replaces nothing on its own, moves nothing between zones and never takes one away.

resource "aws_autoscaling_group" "spares" {
  count = var.spares == null ? 0 : 1

  name                  = "${local.name}-spares"
  min_size              = 0
  max_size              = var.spares.size
  desired_capacity      = var.spares.size
  vpc_zone_identifier   = var.spares.subnet_ids
  placement_group       = var.spares.placement_group
  health_check_type     = "EC2"
  protect_from_scale_in = true
  force_delete          = var.spares.terminate_on_destroy
  suspended_processes   = ["AZRebalance", "HealthCheck", "InstanceRefresh", "ReplaceUnhealthy"]

  # GPU capacity may be hours away: the group goes on trying, and nobody waits for it here.
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = var.spares.launch_template_id
    version = var.spares.launch_template_version
  }

  dynamic "tag" {
    for_each = merge(local.tags, {
      "Name"             = "${local.name}-spare"
      "hotspare:cluster" = var.cluster
      "hotspare:role"    = "spare"
    })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    # A spare that Hotspare gave to a job leaves the group; the number is then changed by a person, or by `terraform apply`.
    ignore_changes = [desired_capacity]
  }
}
