"""What a cluster with Kubernetes is wired to, and settings that need it and do not say where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities.draining import NoDrainer
from activities.errors import CapabilityMissing
from activities.kubernetes_drain import KubernetesDrainer
from activities.kubernetes_marks import KubernetesMarks
from workers.settings import Settings, SettingsError, parse_settings
from workers.wiring import Wiring

LIST: dict[str, Any] = {
    "inventory": {"source": "list", "nodes": [{"instance_id": "i-1", "name": "node-1"}]},
    "aws": {"region": "us-east-1"},
}


def settings(folder: Path, **tables: Any) -> Settings:
    return parse_settings({**LIST, **tables}, folder / "hotspare.toml")


def test_with_kubernetes_nodes_are_cordoned_and_drained_there_and_nothing_is_reached_before_it_is_asked(tmp_path: Path) -> None:
    wiring = Wiring(settings(tmp_path, kubernetes={"source": "kubeconfig", "kubeconfig": "not-there"}))
    assert isinstance(wiring._launcher_marks, KubernetesMarks)
    assert isinstance(wiring._drainer, KubernetesDrainer)
    wiring.close()


def test_without_kubernetes_there_is_nothing_to_drain(tmp_path: Path) -> None:
    wiring = Wiring(settings(tmp_path))
    assert wiring.kubernetes is None
    assert isinstance(wiring._drainer, NoDrainer)
    with pytest.raises(CapabilityMissing, match=r"kubernetes\.source"):
        _ = wiring.kubernetes_nodes
    wiring.close()


@pytest.mark.parametrize(
    ("tables", "place"),
    [
        ({"job": {"adapter": "kubernetes"}}, r"kubernetes\.source: needed for job\.adapter"),
        ({"access": {"kind": "agent"}}, r"kubernetes\.source: needed for access\.kind"),
        ({"kubernetes": {"source": "eks"}}, r"kubernetes\.eks_cluster: needed"),
    ],
)
def test_settings_that_need_kubernetes_say_what_is_missing(tmp_path: Path, tables: dict[str, Any], place: str) -> None:
    with pytest.raises(SettingsError, match=place):
        settings(tmp_path, **tables)
