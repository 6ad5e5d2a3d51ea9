"""What host memory knows of each spare: its last test, its probation, banned GPUs; and the note that a test has ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from temporalio import activity

from activities.errors import HotspareError, as_application_error
from activities.gpu_records import banned
from activities.host_memory import HostMemory, remember
from activities.host_records import HostRecord, SpareRecord, SpareTest
from activities.inventory import Node
from activities.message import Message
from activities.names import FATE_PROBATION, ROLE_SPARE

logger = logging.getLogger(__name__)


class NoteSpareTest(Message):
    """A spare was tested."""

    instance_id: str
    test: SpareTest


class SpareActivities:
    """What workflows write down about spares."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory

    @activity.defn
    def note_spare_test(self, request: NoteSpareTest) -> None:
        """Remember how a test of a spare ended; the same test once."""
        with as_application_error():
            remember(self._memory, request.instance_id, lambda record: with_test(record, request.test))


def with_test(record: HostRecord, test: SpareTest) -> HostRecord:
    """Return the record after a test. One that ended before what is known changes nothing."""
    if record.spare_test is not None and record.spare_test.at >= test.at:
        return record
    passed = {"qualified_at": test.at} if test.passed else {}
    return record.model_copy(update={"spare_test": test, **passed})


def records_of(memory: HostMemory, nodes: Sequence[Node]) -> list[SpareRecord]:
    """Return what is known of the spares among these nodes. What cannot be read is not known, which is no pass."""
    try:
        return [_record(memory, node) for node in nodes if node.role == ROLE_SPARE]
    except HotspareError as error:
        logger.warning("what is known of the spares could not be read: %s", error)
        return []


def _record(memory: HostMemory, node: Node) -> SpareRecord:
    known = memory.recall(node.instance_id)
    on_probation = FATE_PROBATION in (known.fate, node.fate)
    return SpareRecord(
        instance_id=node.instance_id,
        test=known.spare_test,
        qualified_at=known.qualified_at,
        repaired_at=known.last_incident_closed_at if on_probation else None,
        bans=banned(memory.gpus(known.gpu_serials)) if known.gpu_serials else [],
    )
