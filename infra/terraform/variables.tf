# What the caller says. Only the cluster's name has no default; what is left out is not made.

variable "cluster" {
  description = "Name of the cluster: value of the tag hotspare:cluster on its instances, and [cluster] name in hotspare.toml."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$", var.cluster))
    error_message = "At most 32 letters, digits, dots, hyphens and underscores, a letter or digit first: it becomes part of names of roles and queues."
  }
}

variable "observe_only" {
  description = "The machine that runs Hotspare may become the role observe and no other, so that nothing can be changed. Leave it true until `mode` leaves observe."
  type        = bool
  default     = true
}

variable "trusted_principals" {
  description = "ARNs of more principals that may become the worker roles, such as a role of people who run the command line."
  type        = list(string)
  default     = []
}

variable "permissions_boundary" {
  description = "ARN of a permissions boundary for every role; null: none."
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags on everything that this module makes."
  type        = map(string)
  default     = {}
}

variable "eks_cluster" {
  description = "Name of the EKS cluster; null: none. The roles get access entries in it, and Hotspare's pods the role of the machine that runs Hotspare."
  type        = string
  default     = null
}

variable "eks_namespace" {
  description = "Namespace of Hotspare in Kubernetes (kubernetes.namespace)."
  type        = string
  default     = "hotspare"
}

variable "auto_scaling_groups" {
  description = "Names of Auto Scaling groups whose launches and terminations Hotspare is told about. Give them the tag hotspare:cluster to let it put members into Standby."
  type        = list(string)
  default     = []
}

variable "launch_spares" {
  description = "Let the role aws launch spares from launch templates and reservations that have the tag hotspare:cluster, and end retired nodes, those of Auto Scaling groups with that tag too (provision.templates, policy.renew_retired)."
  type        = bool
  default     = false
}

variable "launched_role_arns" {
  description = "ARNs of the roles in the instance profiles that those launch templates name."
  type        = list(string)
  default     = []
}

variable "hyperpod_cluster_arn" {
  description = "ARN of the SageMaker HyperPod cluster that the nodes are of (aws.provider = \"hyperpod\"): its events are heard, and the roles may ask it for repairs; null: none."
  type        = string
  default     = null
}

variable "host_memory" {
  description = "Where host memory is (store.memory): dynamodb makes a table; shared uses memory_table, which another cluster's module made; sqlite is a file, for workers on one machine."
  type        = string
  default     = "dynamodb"

  validation {
    condition     = contains(["dynamodb", "shared", "sqlite"], var.host_memory)
    error_message = "dynamodb, shared or sqlite."
  }
}

variable "memory_table" {
  description = "Name of the table (store.table); null: hotspare-CLUSTER-memory."
  type        = string
  default     = null
}

variable "memory_deletion_protection" {
  description = "Refuse to delete the table, and with it every strike, ban and closed incident."
  type        = bool
  default     = true
}

variable "evidence_bucket" {
  description = "Name of an S3 bucket of yours for evidence bundles (evidence.bucket); null: none. The role ssh may write and read there, nothing else."
  type        = string
  default     = null
}

variable "evidence_prefix" {
  description = "Begin of the bundles' keys (evidence.prefix)."
  type        = string
  default     = "hotspare/evidence/"
}

variable "evidence_kms_key_arn" {
  description = "ARN of the KMS key that encrypts bundles (evidence.kms_key); null: S3's own encryption."
  type        = string
  default     = null
}

variable "run_command" {
  description = "Reach nodes by Run Command of Systems Manager (access.kind = \"ssm\"): make its documents, and let the roles send these."
  type        = bool
  default     = false
}

variable "run_command_bucket" {
  description = "Name of an S3 bucket of yours for outputs of more than 24,000 characters (access.ssm.bucket); null: none. Block public access to it, and let objects expire after a day."
  type        = string
  default     = null
}

variable "run_command_prefix" {
  description = "Begin of their keys (access.ssm.prefix)."
  type        = string
  default     = "hotspare/run-command"
}

variable "vpc_id" {
  description = "VPC in which Hotspare runs; null: no security group is made."
  type        = string
  default     = null
}

variable "node_security_group_ids" {
  description = "Security groups of the nodes, by a name of your choice: each gets a rule that lets Hotspare in by SSH."
  type        = map(string)
  default     = {}
}

variable "ssh_port" {
  description = "Port of the nodes' SSH servers."
  type        = number
  default     = 22
}

variable "intake_port" {
  description = "Port of the intake (intake.port)."
  type        = number
  default     = 9099
}

variable "intake_sources" {
  description = "CIDR blocks that may reach the intake: Alertmanager, and agents on the nodes."
  type        = set(string)
  default     = []
}

variable "spares" {
  description = "A group of spares that AWS keeps running; null: none. The launch template says everything about the instances: type, AMI, placement group, EFA interfaces, capacity reservation. terminate_on_destroy ends them with the group; otherwise the group stays as long as it has members."
  type = object({
    launch_template_id      = string
    launch_template_version = optional(string, "$Default")
    subnet_ids              = list(string)
    size                    = number
    placement_group         = optional(string)
    terminate_on_destroy    = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.spares == null ? true : var.spares.size >= 1 && floor(var.spares.size) == var.spares.size
    error_message = "size is the number of spares: 1 or more."
  }
}
