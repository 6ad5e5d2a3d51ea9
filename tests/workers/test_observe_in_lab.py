"""A new cluster observes with credentials that cannot write: the whole incident runs, and AWS would have refused the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import settings as moto_settings

from activities.names import TAG_QUARANTINE, incident_id
from infra.iam.policies import file_of
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import REGION, LabOptions
from tests.workers.test_run_in_lab import ended, hotspare, running
from workers.connection import connect
from workflows.messages import IncidentReport

OBSERVER = "observer"


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=1, boot_s=0.2)) as up:
        for name, value in up.environment().items():
            monkeypatch.setenv(name, value)
        yield up


@pytest.fixture
def credentials(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A user with the policy that ships for observing; from now on the endpoint enforces it. A profile has the user's key."""
    iam = boto3.client("iam", region_name=REGION)
    iam.create_user(UserName=OBSERVER)
    policy = json.loads(file_of("observe").read_text())
    # moto knows actions alone; conditions and resources are tried with the policies themselves.
    plain = [{**one, "Resource": "*"} for one in policy["Statement"]]
    for one in plain:
        one.pop("Condition", None)
    iam.put_user_policy(UserName=OBSERVER, PolicyName="observe", PolicyDocument=json.dumps({**policy, "Statement": plain}))
    key = iam.create_access_key(UserName=OBSERVER)["AccessKey"]
    file = lab.folder / "aws-credentials"
    file.touch(0o600)
    file.write_text(f"[observing]\naws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    yield {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")


def observing(lab: Lab) -> None:
    """Set the lab's healer to observe, with the observer's profile for every role."""
    config = lab.folder / "hotspare.toml"
    text = config.read_text().replace('mode = "act"', 'mode = "observe"')
    config.write_text(text.replace("[aws]\n", '[aws]\nroles = { observe = { profile = "observing" } }\n'))


async def denied_to(credentials: dict[str, str], call: str, **parameters: Any) -> bool:
    """Whether AWS refuses a call."""
    client: Any = boto3.client("ec2", region_name=REGION, **credentials)  # type: ignore[call-overload]
    try:
        await asyncio.to_thread(getattr(client, call), **parameters)
    except ClientError as error:
        return error.response["Error"]["Code"] in ("AccessDenied", "UnauthorizedOperation")
    return False


async def test_an_incident_is_observed_from_report_to_end_by_who_cannot_write(
    lab: Lab, credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    observing(lab)
    lab.endpoint.calls.clear()
    node = lab.nodes["node-1"]
    assert await denied_to(credentials, "reboot_instances", InstanceIds=[node.instance_id])
    assert await denied_to(credentials, "create_tags", Resources=[node.instance_id], Tags=[{"Key": TAG_QUARANTINE, "Value": "x"}])
    assert not await denied_to(credentials, "describe_instances")
    # What the process was given itself is of no use: only the observer's profile is.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    init = await hotspare("init", "--yes", "--json")
    out, _ = await init.communicate()
    assert "AKIANOBODY" not in out.decode()
    client = await connect()
    async with running() as (_, up):
        assert up["watcher"]["nodes"] == 3
        await lab.inject("node-1", Fault(xid=79))
        await ended(client, lab, "node-1")
    handle = client.get_workflow_handle(incident_id("lab", node.instance_id), result_type=IncidentReport)
    report = await handle.result()
    assert report.outcome == "observed"
    assert any("REBOOT_NODE" in line for line in report.story)
    assert [call.operation for call in lab.endpoint.calls] == []
    history = (await handle.fetch_history()).to_json()
    assert "ACTIVITY_TASK_FAILED" not in history
    assert "AccessRefused" not in history
