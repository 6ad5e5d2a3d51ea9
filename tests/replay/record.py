"""Record histories for the replay tests: `python -m tests.replay.record RELEASE`, once for each release, before its tag.

Writes one file per workflow of a few stories on a fleet in memory, open incidents among them; its name is the quoted workflow id.
Files are added to, never rewritten: a script that rewrote them with each change would bless its own break.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

from activities.clients.fake_machine import Cure, FakeFault
from checks.model import Action
from tests.workflows.healing import Healing, healing
from workers.launch.ending import end_process
from workflows.decisions.settings import Mode, PolicySettings

HISTORIES = Path(__file__).parent / "histories"
RELEASE = re.compile(r"\d+\.\d+\.\d+")

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
}


async def record(release: str) -> int:
    """Play every story and store the histories; returns an exit status."""
    target = HISTORIES / release
    if target.exists():
        print(f"{target} exists: histories of a release are never rewritten; name a new release", file=sys.stderr)
        return 64
    for name, (play, spares, policy) in STORIES.items():
        with tempfile.TemporaryDirectory() as folder:
            async with healing(Path(folder), spares=spares, policy=policy) as cluster:
                await play(cluster)
                await store(cluster, target / name)
    return 0


async def store(cluster: Healing, folder: Path) -> None:
    """Write the history of every workflow there is."""
    folder.mkdir(parents=True)

    async def visible() -> bool:
        return bool([one async for one in cluster.client.list_workflows("WorkflowType = 'RemediateNode'")])

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
