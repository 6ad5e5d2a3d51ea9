"""Record histories for the replay tests: `python -m tests.replay.record RELEASE`, once for each release, before its tag.

Writes one file per workflow of a few stories on a fleet in memory, open incidents among them; its name is the quoted workflow id.
A story that a release has is never recorded again, only new ones are added: a script that rewrote them with each change would
bless its own break.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from temporalio.client import WorkflowFailureError

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.jobs.protocol import RestartedBy
from activities.message import Message
from checks.model import Action
from tests.workflows.healing import Healing, healing
from workers.launch.ending import end_process
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import StartBurnIn, StartProvision, StartQualification

HISTORIES = Path(__file__).parent / "histories"
RELEASE = re.compile(r"\d+\.\d+\.\d+")


async def of_a_controller(cluster: Healing) -> None:
    """The job becomes one that its controller restarts, its pods are drained before a node restarts."""
    cluster.fleet.job.restarted_by = RestartedBy.CONTROLLER
    cluster.fleet.drains = True
    await cluster.restart_worker()


async def spare_proven(cluster: Healing) -> None:
    """A spare is paired, brought in, and the node drained and repaired afterwards."""
    await of_a_controller(cluster)
    cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await (await cluster.report("node-2", xid=79)).result()


async def paired_in_place(cluster: Healing) -> None:
    """The node is drained, rebooted and paired before it serves again."""
    await spare_proven(cluster)


async def taken_over(cluster: Healing) -> None:
    """The controller does not manage."""
    await of_a_controller(cluster)
    cluster.fleet.job.controller_works = False
    cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    await (await cluster.report("node-3", xid=64)).result()


async def cancelled_in_its_proof(cluster: Healing) -> None:
    """A person cancels while the spare is being proven: the burn-in stops, the partner and the spare go back."""
    await of_a_controller(cluster)
    cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    running = cluster.fleet.hold("group.start")
    handle = await cluster.report("node-3", xid=64)
    await running.reached()
    await handle.cancel(reason="ann: not now")
    running.release()
    with suppress(WorkflowFailureError):
        await handle.result()


async def spare_fails_its_test(cluster: Healing) -> None:
    """A spare is ill, its test finds it, and its own incident takes it out of the pool."""
    fleet = cluster.fleet
    fleet.inject("spare-1", FakeFault(slow=0.3, slow_kind="intra", cure=Cure.NEVER))
    node = fleet.node("spare-1")
    await run(
        cluster, names.WORKFLOW_QUALIFY_SPARE, names.qualify_id("lab", node.instance_id), StartQualification(node="spare-1")
    )
    await cluster.incident_of("spare-1").result()


async def spare_launched(cluster: Healing) -> None:
    """A spare is launched by hand, tested, and put into the pool."""
    start = StartProvision(cluster="lab", instance_type=cluster.fleet.instance_type)
    await run(cluster, names.WORKFLOW_PROVISION_SPARE, names.provision_id("lab", "by-hand"), start)


async def slot_renewed(cluster: Healing) -> None:
    """A node is retired, and a launched spare takes its slot."""
    fleet = cluster.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    retired = await cluster.report("node-2", xid=79)
    await retired.result()
    start = StartProvision(cluster="lab", instance_type=fleet.instance_type, in_place_of="node-2", incident=retired.id)
    await run(cluster, names.WORKFLOW_PROVISION_SPARE, names.provision_id("lab", "in-place"), start)


async def burned_in_by_hand(cluster: Healing) -> None:
    """A slow node is found, the rest is proven, every pair is tried."""
    cluster.fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    cluster.fleet.job.hold("train", "burn-in by hand")
    start = StartBurnIn(nodes=["node-1", "node-2", "node-3", "node-4"], every_pair=True)
    await run(cluster, names.WORKFLOW_BURN_IN, names.burn_in_id("lab", "by-hand"), start)


async def slow_rail_found(cluster: Healing) -> None:
    """Every group fails, and the rails are compared."""
    cluster.fleet.slow_rails.add(6)
    cluster.fleet.job.hold("train", "burn-in by hand")
    start = StartBurnIn(nodes=["node-1", "node-2", "node-3", "node-4"])
    await run(cluster, names.WORKFLOW_BURN_IN, names.burn_in_id("lab", "rail"), start)


async def run(cluster: Healing, workflow: str, workflow_id: str, start: Message) -> None:
    """Run a workflow as a person does."""
    await cluster.client.execute_workflow(workflow, start, id=workflow_id, task_queue=names.QUEUE_WORKFLOWS)


ASKS = PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REBOOT_NODE: Mode.APPROVE})


async def repaired_in_place(cluster: Healing) -> None:
    """A GPU off the bus, no spare."""
    cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await (await cluster.report("node-2", xid=79)).result()


async def replaced(cluster: Healing) -> None:
    """No spare rows left, one spare."""
    cluster.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    await (await cluster.report("node-3", xid=64)).result()


async def slow_node_found(cluster: Healing) -> None:
    """A restart whose burn-in finds another node."""
    cluster.fleet.inject("node-4", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    cluster.fleet.inject("node-2", FakeFault(xid=94))
    await (await cluster.report("node-2", xid=94)).result()
    await cluster.incident_of("node-4").result()


async def waiting_for_a_person(cluster: Healing) -> None:
    """An incident in the middle, its job held."""
    cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await cluster.told(await cluster.report("node-2", xid=79), "asks a person")


STORIES: dict[str, tuple[Callable[[Healing], Awaitable[None]], int, PolicySettings]] = {
    "repaired-in-place": (repaired_in_place, 0, PolicySettings(mode=Mode.ACT)),
    "replaced": (replaced, 1, PolicySettings(mode=Mode.ACT)),
    "slow-node-found": (slow_node_found, 1, PolicySettings(mode=Mode.ACT)),
    "waiting-for-a-person": (waiting_for_a_person, 0, ASKS),
    "spare-proven": (spare_proven, 2, PolicySettings(mode=Mode.ACT)),
    "paired-in-place": (paired_in_place, 1, PolicySettings(mode=Mode.ACT, resume_first=False)),
    "taken-over": (taken_over, 2, PolicySettings(mode=Mode.ACT)),
    "cancelled-in-its-proof": (cancelled_in_its_proof, 2, PolicySettings(mode=Mode.ACT)),
    "spare-fails-its-test": (spare_fails_its_test, 2, PolicySettings(mode=Mode.ACT)),
    "spare-launched": (spare_launched, 0, PolicySettings(mode=Mode.ACT)),
    "slot-renewed": (slot_renewed, 0, PolicySettings(mode=Mode.ACT)),
    "burned-in-by-hand": (burned_in_by_hand, 0, PolicySettings(mode=Mode.ACT)),
    "slow-rail-found": (slow_rail_found, 0, PolicySettings(mode=Mode.ACT)),
}


async def record(release: str) -> int:
    """Play every story that the release does not have yet and store the histories; returns an exit status."""
    target = HISTORIES / release
    missing = {name: story for name, story in STORIES.items() if not (target / name).exists()}
    if not missing:
        print(f"{target} has every story: histories are never rewritten; name a new release", file=sys.stderr)
        return 64
    for name, (play, spares, policy) in missing.items():
        with tempfile.TemporaryDirectory() as folder:
            async with healing(Path(folder), spares=spares, policy=policy) as cluster:
                await play(cluster)
                await store(cluster, target / name)
    return 0


async def store(cluster: Healing, folder: Path) -> None:
    """Write the history of every workflow there is."""
    folder.mkdir(parents=True)

    async def visible() -> bool:
        return bool([one async for one in cluster.client.list_workflows("WorkflowType != 'Cluster'")])

    await cluster.until(visible)
    async for one in cluster.client.list_workflows():
        history = await cluster.client.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()
        (folder / f"{quote(one.id, safe='')}.json").write_text(history.to_json())
        print(f"{folder.name}: {one.id}, {len(history.events)} events")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not RELEASE.fullmatch(sys.argv[1]):
        print(__doc__, file=sys.stderr)
        end_process(64)
    end_process(asyncio.run(record(sys.argv[1])))
