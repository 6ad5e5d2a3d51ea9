"""The lab itself: puts endpoint, nodes, job, Temporal server and files together, and takes them down again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncssh

from infra.lab.desk import Desk, Operation, Reply
from infra.lab.dynamodb import TABLE, check, make_table
from infra.lab.ec2_endpoint import Ec2Endpoint
from infra.lab.faults import Fault
from infra.lab.fleet import CREDENTIALS, Fleet
from infra.lab.gathered_test import GatheredTest
from infra.lab.group_test import GroupTest
from infra.lab.hardware import hardware_of
from infra.lab.managed import HotspareAgents, ManagedNode, make_documents, put_into
from infra.lab.moto_instances import state_of
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION, LabOptions
from infra.lab.orchestrators import LabJob, Orchestrator, orchestrator_of
from infra.lab.run_command import RunCommand
from infra.lab.ssh_server import SshSide
from infra.lab.temporal_server import TemporalServer
from infra.lab.writing import INTAKE_TOKEN, write_environment, write_settings, write_ssh, write_temporal_profile

MARKER = ".hotspare-lab"
"""A folder with this file is a lab's and may be emptied by the next one."""
_KEPT = (MARKER, "lab.log")


class Lab:
    """A cluster in the present process, as an async context manager. One at a time: moto's state belongs to the process."""

    def __init__(self, options: LabOptions) -> None:
        self.options = options.scaled()
        self.folder = options.folder.absolute()
        self.orchestrator: Orchestrator
        self.endpoint: Ec2Endpoint
        self.ssh: SshSide
        self.run_command: RunCommand
        self.agents: HotspareAgents
        database = self.folder / "temporal.sqlite3" if options.temporal_keeps_state else None
        self.temporal = TemporalServer(self.folder / "temporal.log", database) if options.temporal else None
        if self.options.access == "ssm" and self.options.orchestrator == "kubernetes":
            raise ValueError("on kubernetes the lab's nodes are reached by ssh or agent, not by ssm")
        self._fleet: Fleet
        self._desk = Desk()
        self._config = self.folder / "hotspare.toml"

    @property
    def nodes(self) -> Mapping[str, LabNode]:
        """The nodes by name: head, node-1 and so on, spare-1 and so on, and what was launched since."""
        return self._fleet.nodes

    @property
    def job(self) -> LabJob:
        """The training job."""
        return self.orchestrator.job

    async def __aenter__(self) -> Lab:
        _take_folder(self.folder)
        temporal = asyncio.ensure_future(self.temporal.start()) if self.temporal else None
        try:
            await self._build()
            if temporal is not None:
                await temporal
            self._write_files()
        except BaseException:
            if temporal is not None:
                temporal.cancel()
                await asyncio.gather(temporal, return_exceptions=True)
            await self._take_down()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._take_down()

    async def _build(self) -> None:
        options = self.options
        hardware = hardware_of(options.instance_type)
        self.ssh = SshSide(_login_key(self.folder / "ssh"))
        self._fleet = Fleet(options, self.ssh, await self._desk.start(), lambda: self._write_ssh(learn=False))
        self.endpoint = Ec2Endpoint(self._fleet)
        await asyncio.to_thread(self.endpoint.start)
        check(options.memory)
        if options.memory == "dynamodb":
            await asyncio.to_thread(make_table, self.endpoint.url, TABLE, CREDENTIALS)
        if options.access == "ssm":
            await self._offer_run_command()
        await self._fleet.build(self.endpoint)
        self.group_test = GroupTest(self, hardware, options.group_test_s)
        self._desk.offer("mpirun", self.group_test.run)
        self._desk.offer("group-member", GatheredTest(self.group_test).join)
        self.orchestrator = orchestrator_of(self, options)
        await self.orchestrator.start()
        self._desk.offer("trainctl", self.orchestrator.job.trainctl)
        self._desk.offer("reboot", self._reboot_by_command)

    async def _offer_run_command(self) -> None:
        """Let nodes be reached by Run Command, and report their own kernel log, as nobody logs in to follow it."""
        url = self.endpoint.url
        await asyncio.to_thread(make_documents, url, CREDENTIALS)
        self.agents = HotspareAgents(self.folder / INTAKE_TOKEN)
        self._fleet.at_boot = self.agents.begin
        self.run_command = self.endpoint.run_command = RunCommand(
            asyncio.get_running_loop(),
            lambda: [ManagedNode(node) for node in list(self.nodes.values())],
            partial(put_into, url, CREDENTIALS),
            REGION,
        )

    async def _take_down(self) -> None:
        if hasattr(self, "ssh"):
            self.ssh.holds.drop_all()
        if hasattr(self, "run_command"):
            await self.run_command.close()
        if hasattr(self, "orchestrator"):
            await self.orchestrator.close()
        await self._desk.stop()
        if hasattr(self, "endpoint"):
            await asyncio.to_thread(self.endpoint.stop)
        if hasattr(self, "_fleet"):
            await self._fleet.close()
        if hasattr(self, "agents"):
            await self.agents.close()
        if self.temporal is not None:
            await self.temporal.stop()

    def offer(self, name: str, operation: Operation) -> None:
        """Let commands of nodes ask for one more operation."""
        self._desk.offer(name, operation)

    async def _reboot_by_command(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        self._fleet.reboot(self.nodes[asker])
        return 0

    def _write_ssh(self, *, learn: bool) -> None:
        write_ssh(self.folder / "ssh", self.nodes.values(), learn=learn)

    def _write_files(self) -> None:
        self._write_ssh(learn=True)
        ui_url = self.temporal.ui_url if self.temporal else ""
        port = self.agents.intake_port if hasattr(self, "agents") else 0
        write_settings(self.folder, self.options, ui_url, self.orchestrator.settings(), port)
        if self.temporal is not None:
            write_temporal_profile(self.folder, self.temporal.address, self.temporal.namespace)
        write_environment(self.folder, self.environment())

    def environment(self) -> dict[str, str]:
        """What a process needs to work with this lab: AWS endpoint and region, Temporal profile, settings file."""
        environment = {
            "AWS_ENDPOINT_URL": self.endpoint.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"])),
            **CREDENTIALS,
            "HOTSPARE_CONFIG": str(self._config),
            **self.orchestrator.environment(),
        }
        if self.temporal is not None:
            environment["TEMPORAL_CONFIG_FILE"] = str(self.folder / "temporal.toml")
            environment["TEMPORAL_ADDRESS"] = self.temporal.address
        return environment

    async def inject(self, node: str, fault: Fault) -> list[str]:
        """Give a node a fault; returns the kernel lines that were printed. ValueError names the nodes if there is no such one."""
        return self._node(node).inject(fault)

    async def cure(self, node: str) -> None:
        """Take every fault from a node, as new hardware would."""
        self._node(node).cure()

    async def reboot_done(self, node: str, since_boot_id: str) -> str:
        """Wait until a node is up with another boot id; returns it."""
        lab_node = self._node(node)
        await lab_node.wait_until(lambda seen: seen.state is NodeState.UP and seen.boot_id != since_boot_id)
        return lab_node.boot_id

    def _node(self, name: str) -> LabNode:
        if name not in self.nodes:
            raise ValueError(f"no lab node is called {name}; there are {', '.join(self.nodes)}")
        return self.nodes[name]

    def status(self) -> dict[str, Any]:
        """Return the state of the lab as JSON: nodes, job, endpoint calls, addresses."""
        calls: dict[str, int] = {}
        for call in self.endpoint.calls:
            calls[call.operation] = calls.get(call.operation, 0) + 1
        return {
            "pid": os.getpid(),
            "folder": str(self.folder),
            "config": str(self._config),
            "endpoint_url": self.endpoint.url,
            "temporal_address": self.temporal.address if self.temporal else "",
            "temporal_pid": self.temporal.pid if self.temporal else None,
            "ui_url": self.temporal.ui_url if self.temporal else "",
            "ec2_states": {name: state_of(node.instance_id) for name, node in self.nodes.items()},
            "nodes": [node.describe() for node in self.nodes.values()],
            "job": self.job.status(),
            "orchestrator": {"kind": self.options.orchestrator, **self.orchestrator.describe()},
            "calls": calls,
        }


def _take_folder(folder: Path) -> None:
    """Empty the folder of an earlier lab, or take a new or empty one; anything else is somebody's and is left alone."""
    if folder.is_dir() and any(folder.iterdir()):
        if any(entry.name not in _KEPT for entry in folder.iterdir()) and not (folder / MARKER).exists():
            raise ValueError(f"{folder} is not empty and no lab made it; choose another folder")
        for entry in folder.iterdir():
            if entry.name not in _KEPT:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / MARKER).touch()


def _login_key(folder: Path) -> asyncssh.SSHAuthorizedKeys:
    """Make the key that may log in to every node."""
    folder.mkdir(exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = folder / "id_ed25519"
    path.touch(0o600)
    path.write_bytes(key.export_private_key())
    return asyncssh.import_authorized_keys(key.export_public_key().decode())
