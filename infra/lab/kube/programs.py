"""What `make kube-assets` builds: each program, the Go module that pins it, and the manifests that belong to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """One program. `module` is a folder under assets/; `manifests` are folders or files inside the Go module `source`."""

    name: str
    module: str
    package: str
    ldflags: str = "-s -w"
    source: str = ""
    manifests: tuple[tuple[str, str], ...] = ()


_KUBERNETES = "k8s.io/kubernetes"
# `kubectl version` refuses a server whose version is not a number, and without this it is "v0.0.0-master".
_KUBERNETES_FLAGS = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3"

PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *(
        Program(name, "kubernetes", f"{_KUBERNETES}/cmd/{name}", _KUBERNETES_FLAGS)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
    Program(
        "kwok",
        "kwok",
        "sigs.k8s.io/kwok/cmd/kwok",
        source="sigs.k8s.io/kwok",
        manifests=(("kustomize/stage/node/fast", "node"), ("kustomize/stage/pod/fast", "pod")),
    ),
    Program(
        "jobset",
        "jobset",
        "sigs.k8s.io/jobset",
        source="sigs.k8s.io/jobset",
        manifests=(("config/components/crd/bases", "crds"), ("config/components/webhook/manifests.yaml", "webhooks.yaml")),
    ),
    Program(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
        source="github.com/kubeflow/training-operator",
        manifests=(("manifests/base/crds", "crds"), ("manifests/base/webhook/manifests.yaml", "webhooks.yaml")),
    ),
    Program(
        "trainer",
        "trainer",
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        source="github.com/kubeflow/trainer/v2",
        manifests=(("manifests/base/crds", "crds"), ("manifests/base/webhook/manifests.yaml", "webhooks.yaml")),
    ),
    Program(
        "kueue",
        "kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        source="sigs.k8s.io/kueue",
        manifests=(("config/components/crd/bases", "crds"), ("config/components/webhook/manifests.yaml", "webhooks.yaml")),
    ),
    Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
    Program("tctl", "tctl", "github.com/temporalio/tctl/cmd/tctl"),
)
