"""`hotspare manifests` writes what this release needs in Kubernetes, and nothing over what somebody has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from activities.errors import BadInput
from workers.cli.app import exit_status
from workers.cli.manifests import write_manifests

CHANGING = {"create", "patch", "update", "delete", "deletecollection", "*"}


def test_the_manifests_are_written_and_are_kubernetes_objects(tmp_path: Path) -> None:
    assert exit_status(["manifests", str(tmp_path / "new")]) == 0
    objects = [one for file in (tmp_path / "new").glob("*.yaml") for one in yaml.safe_load_all(file.read_text())]
    assert {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} <= {
        one["kind"] for one in objects
    }


def test_the_observing_role_changes_nothing_and_no_role_may_do_everything(tmp_path: Path) -> None:
    plain = [file for file in write_manifests(tmp_path, False) if file.parent == tmp_path]
    objects = [one for file in plain for one in yaml.safe_load_all(file.read_text())]
    roles = {one["metadata"]["name"]: one["rules"] for one in objects if one["kind"] == "ClusterRole"}
    assert not {verb for rule in roles["hotspare-observe"] for verb in rule["verbs"]} & CHANGING
    words = {
        word for rules in roles.values() for rule in rules for key in ("apiGroups", "resources", "verbs") for word in rule[key]
    }
    assert not words & {"*", "secrets", "escalate", "bind", "impersonate"}


def test_a_file_that_somebody_has_changed_is_kept(tmp_path: Path) -> None:
    write_manifests(tmp_path, False)
    write_manifests(tmp_path, False)
    (tmp_path / "rbac.yaml").write_text("mine")
    with pytest.raises(BadInput, match=r"rbac\.yaml differ.*--force"):
        write_manifests(tmp_path, False)
    assert (tmp_path / "rbac.yaml").read_text() == "mine"
    write_manifests(tmp_path, True)
    assert (tmp_path / "rbac.yaml").read_text() != "mine"


def test_chart_module_policies_and_units_come_with_them(tmp_path: Path) -> None:
    names = {file.relative_to(tmp_path).as_posix() for file in write_manifests(tmp_path, False)}
    assert {"helm/hotspare/Chart.yaml", "helm/hotspare/templates/parts.yaml", "helm/hotspare/.helmignore"} <= names
    assert {"terraform/roles.tf", "iam/aws.json", "systemd/hotspare.service", "systemd/hotspare-worker@.service"} <= names
    assert {"ssm/hotspare-node.json", "ssm/hotspare-node-look.json", "iam/run_command/ssh.json", "terraform/access.tf"} <= names
    assert not [name for name in names if name.endswith((".py", ".pyc"))]


def test_the_chart_has_the_manifests_themselves_inside(tmp_path: Path) -> None:
    plain = [file for file in write_manifests(tmp_path, False) if file.parent == tmp_path]
    inside = sorted((tmp_path / "helm" / "hotspare" / "files").iterdir())
    assert [(file.name, file.read_text()) for file in inside] == [(file.name, file.read_text()) for file in sorted(plain)]
