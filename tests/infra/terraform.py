"""Runs the real Terraform on a copy of the module, against an AWS endpoint on loopback; where it is absent, tests say so.

Terraform fetches nothing here: the aws provider comes from a folder on this machine, the mirror that `terraform providers mirror`
makes. Named by TF_PLUGIN_DIR, or one of Terraform's own places, or a folder of /opt.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]
PROVIDER = "registry.terraform.io/hashicorp/aws"
MIRRORS = (
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
)
OUTPUTS = re.findall(r'^output "(\w+)"', (TREE / "infra" / "terraform" / "outputs.tf").read_text(), re.MULTILINE)
SERVICES = ("autoscaling", "dynamodb", "ec2", "eks", "events", "iam", "sqs", "ssm", "sts")


def mirror() -> Path | None:
    """The folder that has the aws provider, if any has."""
    named = os.environ.get("TF_PLUGIN_DIR")
    places = [Path(one).expanduser() for one in ((named,) if named else MIRRORS)]
    places += [] if named else sorted(Path("/opt").glob("*"))  # where a machine's own additions are
    return next((place for place in places if any((place / PROVIDER).glob("*"))), None)


def missing() -> str:
    """What keeps Terraform from running here; empty when nothing does."""
    if shutil.which("terraform") is None:
        return "terraform is not installed"
    if mirror() is None:
        return f"no folder has the provider {PROVIDER}: terraform providers mirror DIR, and TF_PLUGIN_DIR=DIR"
    return ""


needs_terraform = pytest.mark.skipif(missing() != "", reason=missing() or "terraform is there")


class TerraformFailed(AssertionError):
    """Terraform ended with an error. The message is what it printed."""


class Terraform:
    """A root module that calls ours with given arguments, and its state, in a folder of its own."""

    def __init__(self, folder: Path, endpoint: str, region: str, **arguments: Any) -> None:
        self.folder = folder
        self._copy_module()
        self.write(endpoint, region, **arguments)
        (folder / "terraformrc").write_text("disable_checkpoint = true\n")
        (folder / "home").mkdir()
        self.run("init", "-input=false", f"-plugin-dir={mirror()}")

    def _copy_module(self) -> None:
        for part in ("terraform", "iam", "ssm"):
            no_code = shutil.ignore_patterns("*.py", "__pycache__")
            shutil.copytree(TREE / "infra" / part, self.folder / "hotspare" / part, ignore=no_code)

    def write(self, endpoint: str, region: str, **arguments: Any) -> None:
        """Write the root module anew: the same AWS, other arguments."""
        provider = {
            "region": region,
            "access_key": "admin",
            "secret_key": "admin",
            "skip_credentials_validation": True,
            "skip_metadata_api_check": True,
            "endpoints": [dict.fromkeys(SERVICES, endpoint)],
        }
        root = {
            "provider": {"aws": [provider]},
            "module": {"hotspare": {"source": "./hotspare/terraform", **arguments}},
            "output": {name: {"value": f"${{module.hotspare.{name}}}"} for name in OUTPUTS},
        }
        (self.folder / "main.tf.json").write_text(json.dumps(root, indent=1))

    def run(self, *command: str, accepted: tuple[int, ...] = (0,)) -> str:
        """Run a command of Terraform; what it printed. TerraformFailed for a status that is not accepted."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "TF_CLI_CONFIG_FILE": str(self.folder / "terraformrc"),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }
        options = [] if command[0] in ("state", "output", "show") else ["-no-color"]
        done = subprocess.run(
            ["terraform", *command, *options], cwd=self.folder, env=environment, text=True, capture_output=True, check=False
        )
        if done.returncode not in accepted:
            raise TerraformFailed(f"terraform {' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def apply(self, *options: str) -> None:
        """Make what is wanted."""
        self.run("apply", "-auto-approve", "-input=false", *options)

    def plan(self) -> dict[str, Any]:
        """The plan of an apply, as JSON."""
        self.run("plan", "-input=false", "-out=plan")
        found: dict[str, Any] = json.loads(self.run("show", "-json", "plan"))
        return found

    def changes(self) -> dict[str, list[str]]:
        """What an apply would change: address of the resource -> names of its attributes."""
        changed = {}
        for one in self.plan().get("resource_changes", []):
            change = one["change"]
            if change["actions"] not in (["no-op"], ["read"]):
                before, after = change["before"] or {}, change["after"] or {}
                unknown = change.get("after_unknown", {})
                changed[one["address"]] = sorted({*unknown, *(key for key in after if before.get(key) != after[key])})
        return changed

    @cached_property
    def _outputs(self) -> dict[str, Any]:
        return {name: one["value"] for name, one in json.loads(self.run("output", "-json")).items()}

    def outputs(self) -> dict[str, Any]:
        """The outputs of our module, once it is applied."""
        return self._outputs

    def destroy(self) -> None:
        """Take everything away again."""
        self.run("destroy", "-auto-approve", "-input=false", "-refresh=false")
