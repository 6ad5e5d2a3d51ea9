"""Following an incident whose id begins another run between two looks: the result and the lines of the first are not lost."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from temporalio import workflow
from temporalio.worker import Worker

from activities.names import incident_id
from tests.workers.conftest import dev_server
from workers.demo.following import Follower
from workflows.messages import IncidentReport
from workflows.operator_view import Line


@workflow.defn(name="RemediateNode", sandboxed=False)
class Incident:
    """Says how it will end, and ends so when told to."""

    def __init__(self) -> None:
        self.told = False
        self.lines: list[Line] = []

    @workflow.run
    async def run(self, outcome: str) -> IncidentReport:
        self.lines.append(Line(at=workflow.now(), phase="reported", text=outcome))
        await workflow.wait_condition(lambda: self.told)
        self.lines.append(Line(at=workflow.now(), phase=outcome, text="the end"))
        return IncidentReport(outcome=outcome)

    @workflow.signal
    def end(self) -> None:
        self.told = True

    @workflow.query
    def story(self) -> list[Line]:
        return self.lines


async def test_a_run_that_ended_and_was_followed_by_another_between_two_looks_keeps_its_result() -> None:
    async with dev_server() as server:
        queue, key = str(uuid4()), incident_id("lab", "i-1")
        follower = Follower(server.client, "lab", {"i-1": "node-1"}, "train", datetime(2026, 1, 1, tzinfo=UTC))
        async with Worker(server.client, task_queue=queue, workflows=[Incident]):
            first = await server.client.start_workflow(Incident.run, "resolved", id=key, task_queue=queue)
            assert [one.line.phase for one in await follower.look()] == ["reported"]
            await first.signal(Incident.end)
            await first.result()
            second = await server.client.start_workflow(Incident.run, "nothing found", id=key, task_queue=queue)
            assert [(one.line.phase, one.line.text) for one in await follower.look()] == [
                ("resolved", "the end"),
                ("reported", "nothing found"),
            ]
            assert (follower.reports["node-1"].outcome, follower.open) == ("resolved", (key,))
            await second.signal(Incident.end)
            await second.result()
            await follower.look()
            assert (follower.reports["node-1"].outcome, follower.open) == ("resolved", ())
