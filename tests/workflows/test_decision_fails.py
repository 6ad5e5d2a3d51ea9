"""An error in a decision is no endless silence: the workflow's task fails, which is found, and it goes on after the mend."""

from __future__ import annotations

import pytest

from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing
from workers.wedged import find_wedged
from workflows import decide
from workflows.decisions.policy import next_step


async def test_a_policy_that_cannot_decide_is_found_as_stuck_and_the_incident_goes_on_after_the_mend(
    no_spares: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("no guard answers")

    monkeypatch.setattr(decide, "next_step", broken)
    no_spares.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    incident = await no_spares.report("node-2", xid=79)

    async def is_found() -> bool:
        return bool(await find_wedged(no_spares.client, no_spares.fleet.cluster, attempts=2))

    await no_spares.until(is_found)
    [stuck] = await find_wedged(no_spares.client, no_spares.fleet.cluster, attempts=2)
    assert (stuck.workflow_id, "no guard answers" in stuck.says) == (incident.id, True)
    assert no_spares.fleet.count("reboot") == 0
    monkeypatch.setattr(decide, "next_step", next_step)
    assert (await incident.result()).outcome == "resolved"
