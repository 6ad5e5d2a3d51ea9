"""A small, quick lab for a test, and the ways in which a test reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import boto3
import pytest

from infra.lab.fleet import CREDENTIALS
from infra.lab.lab import Lab
from infra.lab.options import REGION, LabOptions


class Reach:
    """Talks to a lab as its users do: SSH by its configuration file, AWS by its endpoint."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def connect(self, node: str) -> asyncssh.SSHClientConnection:
        """Log in to a node, with its host key verified."""
        return await asyncssh.connect(node, config=[self.lab.folder / "ssh" / "ssh_config"])

    async def run(self, node: str, command: str) -> asyncssh.SSHCompletedProcess:
        """Run a command line on a node."""
        connection = await self.connect(node)
        try:
            return await connection.run(command)
        finally:
            connection.close()
            await connection.wait_closed()

    async def output(self, node: str, command: str) -> str:
        """Run a command line on a node and return what it printed; it has to succeed."""
        done = await self.run(node, command)
        assert done.exit_status == 0, done.stderr
        return str(done.stdout)

    def aws(self, service: str, **options: Any) -> Any:
        """A client of an AWS service, as short-lived tools make it."""
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.lab.endpoint.url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            **options,
        )

    async def ec2(self, operation: str, **parameters: Any) -> Any:
        """Make one EC2 call, without retries."""
        from botocore.config import Config

        client = self.aws("ec2", config=Config(retries={"total_max_attempts": 1}, read_timeout=600))
        return await asyncio.to_thread(getattr(client, operation), **parameters)


@pytest.fixture
def lab_options(tmp_path: Path) -> LabOptions:
    """A lab of two workers and a spare that boots in no time."""
    return LabOptions(
        folder=tmp_path / "lab",
        nodes=2,
        spares=1,
        temporal=False,
        boot_s=0.05,
        stop_s=0.05,
        step_s=0.02,
        group_test_s=0.1,
        checkpoint_every=5,
    )


@pytest.fixture
async def lab(lab_options: LabOptions) -> AsyncIterator[Lab]:
    """The lab, up."""
    async with Lab(lab_options) as lab:
        yield lab


@pytest.fixture
def reach(lab: Lab) -> Reach:
    """Ways into the lab."""
    return Reach(lab)
