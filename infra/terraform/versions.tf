# What this module needs. It asks for no provider configuration of its own: region and credentials are the caller's.
terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60"
    }
  }
}
