"""Who starts group runs: the orchestrator decides unless the settings do, and what a launcher needs is asked for at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.clients.kube_launcher import KubeLauncher
from activities.clients.mpijob_launcher import MpiJobLauncher
from activities.clients.mpirun_launcher import MpirunLauncher
from activities.clients.srun_launcher import SrunLauncher
from activities.clients.torchrun_launcher import TorchrunLauncher
from tests.workers.test_wiring_kubernetes import settings
from workers.settings import SettingsError
from workers.wiring import Wiring

KUBERNETES = {"source": "kubeconfig", "kubeconfig": "kubeconfig"}
SLURM = {"adapter": "slurm", "head": "node-1"}
CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        ({}, MpirunLauncher),
        ({"job": SLURM}, SrunLauncher),
        ({"job": SLURM, "burn_in": {"launcher": "mpirun"}}, MpirunLauncher),
        ({"kubernetes": KUBERNETES}, MpirunLauncher),
        ({"kubernetes": KUBERNETES, "access": {"kind": "agent", "agent_image": "x"}}, KubeLauncher),
        ({"kubernetes": KUBERNETES, "burn_in": {"launcher": "mpijob"}}, MpiJobLauncher),
        ({"burn_in": {"launcher": "torchrun"}}, TorchrunLauncher),
    ],
)
def test_the_launcher_follows_the_orchestrator_unless_it_is_set(tables: dict[str, Any], kind: type, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(CONFIG)
    told = {name: {**table, "kubeconfig": str(file)} if name == "kubernetes" else table for name, table in tables.items()}
    wiring = Wiring(settings(tmp_path, **told))
    assert type(wiring._launcher) is kind
    wiring.close()


@pytest.mark.parametrize(
    ("launcher", "missing"), [("srun", "job.adapter"), ("kubernetes", "kubernetes.source"), ("mpijob", "kubernetes.source")]
)
def test_a_launcher_without_its_orchestrator_says_which_setting_is_missing(launcher: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f'{missing}: .* for burn_in.launcher = "{launcher}"'):
        settings(tmp_path, burn_in={"launcher": launcher})
