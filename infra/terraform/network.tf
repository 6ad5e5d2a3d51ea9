# Who may speak to whom, where a VPC is named: Hotspare to the nodes by SSH and to AWS and Temporal; senders of alerts to the intake.

resource "aws_security_group" "host" {
  count = var.vpc_id == null ? 0 : 1

  name        = local.name
  description = "Machines and pods that run Hotspare for cluster ${var.cluster}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = local.name })
}

# AWS, Temporal, pagers and nodes: by addresses that this module cannot know.
resource "aws_vpc_security_group_egress_rule" "out" {
  count = length(aws_security_group.host)

  security_group_id = aws_security_group.host[0].id
  description       = "AWS, Temporal, pagers, nodes"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_ingress_rule" "intake" {
  for_each = var.vpc_id == null ? toset([]) : var.intake_sources

  security_group_id = aws_security_group.host[0].id
  description       = "Alerts and reports"
  ip_protocol       = "tcp"
  from_port         = var.intake_port
  to_port           = var.intake_port
  cidr_ipv4         = each.value
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each = var.vpc_id == null ? {} : var.node_security_group_ids

  security_group_id            = each.value
  description                  = "Hotspare checks the nodes of ${var.cluster}"
  ip_protocol                  = "tcp"
  from_port                    = var.ssh_port
  to_port                      = var.ssh_port
  referenced_security_group_id = aws_security_group.host[0].id
}
