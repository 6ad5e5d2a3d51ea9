# On EKS: the roles become the groups that the manifests know, and the pods get the role of the machine that runs Hotspare.

locals {
  groups = var.eks_cluster == null ? {} : {
    k8s     = "hotspare:k8s"
    ssh     = "hotspare:k8s"
    observe = "hotspare:observe"
  }
}

resource "aws_eks_access_entry" "worker" {
  for_each = local.groups

  cluster_name      = var.eks_cluster
  principal_arn     = aws_iam_role.worker[each.key].arn
  kubernetes_groups = [each.value]
  tags              = local.tags
}

resource "aws_eks_pod_identity_association" "hotspare" {
  for_each = toset(var.eks_cluster == null ? [] : ["hotspare", "hotspare-observe"])

  cluster_name    = var.eks_cluster
  namespace       = var.eks_namespace
  service_account = each.value
  role_arn        = aws_iam_role.host.arn
  tags            = local.tags
}
