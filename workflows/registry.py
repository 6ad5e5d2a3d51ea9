"""Every workflow, for workers, replay tests and `init`."""

from __future__ import annotations

from workflows.burn_in import BurnIn
from workflows.cluster import Cluster
from workflows.provision_spare import ProvisionSpare
from workflows.qualify_spare import QualifySpare
from workflows.reconcile import Reconcile
from workflows.recover_job import RecoverJob
from workflows.remediate_node import RemediateNode
from workflows.replace_node import ReplaceNode
from workflows.storm import Storm
from workflows.sweep import Sweep

WORKFLOWS: list[type] = [
    RemediateNode,
    RecoverJob,
    BurnIn,
    ReplaceNode,
    QualifySpare,
    ProvisionSpare,
    Cluster,
    Storm,
    Sweep,
    Reconcile,
]
