"""What is asked beside the node: AWS, host memory and the job's head still answer when the node is dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from activities.ec2_messages import Ec2Client
from activities.errors import PreconditionFailed
from activities.evidence_gathering import Aside
from activities.evidence_taking import Taking
from activities.host_memory import HostMemory
from activities.jobs.protocol import JobAdapter
from activities.node_access import AccessTo, NodeAccess
from activities.probing import Probe


@dataclass(frozen=True)
class EvidenceSources:
    """Where evidence comes from. `head` gives the access to the job's head node, None where there is none."""

    access_to: AccessTo
    probe: Probe
    memory: HostMemory
    ec2: Ec2Client
    jobs: JobAdapter
    head: Callable[[], NodeAccess] | None = None


def begin_record(sources: EvidenceSources, taking: Taking) -> Aside:
    """Start reading what host memory has of the node."""

    def recall() -> str:
        taking.found.record = sources.memory.recall(taking.request.node.instance_id)
        return taking.found.record.model_dump_json(indent=1)

    return Aside("host-record.json", "hotspare", "host memory", recall)


def begin_asides(sources: EvidenceSources, taking: Taking) -> list[Aside]:
    """Start the looks that do not pass through the node: they still answer when it is dead."""
    node, found, ec2 = taking.request.node, taking.found, sources.ec2

    def instance() -> str:
        found.view = ec2.describe(node.instance_id)
        return found.view.model_dump_json(indent=1)

    def status() -> str:
        found.status = ec2.status(node.instance_id)
        return found.status.model_dump_json(indent=1)

    def console() -> str:
        try:
            return ec2.console_output(node.instance_id, latest=True)
        except PreconditionFailed:  # not a Nitro instance
            return ec2.console_output(node.instance_id)

    def job() -> str:
        found.job = sources.jobs.find_on(node)
        return found.job.model_dump_json(indent=1) if found.job is not None else "null\n"

    def incident() -> str:
        return taking.request.model_dump_json(indent=1, include={"incident", "opinion", "reports", "opened_at", "node"})

    return [
        Aside("instance.json", "aws", "EC2 DescribeInstances", instance),
        Aside("status-checks.json", "aws", "EC2 DescribeInstanceStatus", status),
        Aside("console.txt", "aws", "EC2 GetConsoleOutput", console),
        Aside("job.json", "head", "the job on this node", job),
        Aside("incident.json", "hotspare", "what was reported", incident),
    ]
