"""Looks after answers that incidents owe to a job: an incident that was ended by hand says nothing, and the job would wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.incidents import IncidentActivities, NodeIn, OpenIncident
    from activities.node import Report
    from workflows import options
    from workflows.cluster_holders import open_holders
    from workflows.decisions.node_set import NodeSet
    from workflows.failures import cause_of
    from workflows.incident_opening import briefing_of

LOOK_EVERY = timedelta(minutes=5)
"""Between looks at whether the incidents that owe an answer still run. Hotspare default: longer than most repairs are silent."""


class OwedAnswers:
    """One recovery's look at the incidents that it waits for. Each is opened anew once at most."""

    def __init__(self, job: str, tell: Callable[[str, str], None]) -> None:
        self._job = job
        self._tell = tell
        self._opened: set[str] = set()

    async def look(self, cluster: str, node_set: NodeSet) -> None:
        """See who still owes. What cannot be seen now is seen at the next look."""
        owed = node_set.owed()
        try:
            running = await open_holders(cluster, sorted(owed))
            for instance_id, name in sorted(owed.items()):
                if names.incident_id(cluster, instance_id) not in running and instance_id not in self._opened:
                    await self._without_incident(cluster, node_set, instance_id, name)
        except ActivityError as error:
            self._tell("not seen", f"whether the incidents still run: {cause_of(error)}")

    async def _without_incident(self, cluster: str, node_set: NodeSet, instance_id: str, name: str) -> None:
        """A node in service comes back as itself, because the burn-in is its gate; one in quarantine gets an incident again."""
        node = (await briefing_of(cluster, instance_id)).node
        incident = names.incident_id(cluster, instance_id)
        if not node.quarantine:
            self._tell("in again", f"{name} serves, and its incident has ended without a word; the burn-in is its gate")
            node_set.come_in(NodeIn(incident=incident, instance_id=instance_id, node_name=name, replaces=instance_id))
            return
        self._opened.add(instance_id)
        self._tell("asked again", f"{name} is quarantined by {node.quarantine}, and its incident has ended without a word")
        report = Report(
            source=workflow.info().workflow_id,
            key=f"{workflow.info().original_execution_run_id}/owed/{instance_id}",
            what=f"{self._job} waits for {name}, whose incident ended without an answer",
            seen_at=workflow.now(),
        )
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=cluster, instance_id=instance_id, report=report),
            summary=f"incident for {name}, whose earlier one ended without an answer",
            **options.MESSENGER,
        )
