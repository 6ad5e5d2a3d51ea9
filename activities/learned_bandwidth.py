"""Clean group runs as a measure: what earlier ones of the same kind gave is looked up for a judgement, new ones are noted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from temporalio import activity

from activities.bandwidth_records import CleanRun, bandwidth_key, with_runs
from activities.errors import HotspareError, as_application_error
from activities.host_memory import HostMemory, remember_bandwidth
from activities.inventory import Node
from activities.message import Message
from activities.settings_burn_in import LearnedSettings
from checks.judges.learned import Learned, LearnedRules, learned_from
from checks.judges.nccl_software import Software
from checks.parity import Configuration, configuration_from_json

FROM_NODES = {"nccl": "NCCL", "ofi_plugin": "OFI plug-in", "efa_installer": "EFA installer", "driver": "driver"}
"""Versions that bandwidth depends on, by their names among the facts of a node's set-up."""

logger = logging.getLogger(__name__)


class CleanGroupRun(Message):
    """A run that passed, and the key under which runs of its kind are remembered."""

    key: str
    run_id: str
    busbw_gbs: float


class NoteCleanRuns(Message):
    """The runs of a burn-in in which every run passed and nobody was accused."""

    runs: list[CleanGroupRun]
    at: datetime


class LearnedFloors:
    """Looks up what clean runs gave. A store that does not answer leaves the fixed floors alone."""

    def __init__(self, memory: HostMemory, settings: LearnedSettings) -> None:
        self._memory = memory
        self._rules = settings.rules

    def of(self, cluster: str, nodes: Sequence[Node]) -> LearnedLookUp:
        """Return the look-up for one group run of these nodes."""
        return LearnedLookUp(self._memory, self._rules, cluster, nodes)


class LearnedLookUp:
    """`checks.judges.learned.LearnedBy` for one run. `key` is set once the judge has asked and the run can be compared."""

    def __init__(self, memory: HostMemory, rules: LearnedRules, cluster: str, nodes: Sequence[Node]) -> None:
        self._memory, self._rules, self._cluster, self._nodes = memory, rules, cluster, nodes
        self.key = ""

    def __call__(self, software: Software, ranks: int, size_bytes: int) -> Learned | None:
        types = {node.instance_type for node in self._nodes}
        try:
            versions = versions_of(software, self._set_ups(), len(self._nodes))
            if not versions or len(types) != 1:
                return None
            self.key = bandwidth_key(self._cluster, types.pop(), len(self._nodes), ranks, size_bytes, versions)
            found = self._memory.bandwidths([self.key])
        except HotspareError as error:
            logger.warning("what clean runs gave could not be read, the fixed floors hold: %s", error)
            return None
        return learned_from(found[0].values, self._rules) if found else None

    def _set_ups(self) -> list[Configuration]:
        seen = self._memory.configurations([node.instance_id for node in self._nodes])
        return [configuration_from_json(one.document) for one in seen]


def versions_of(software: Software, set_ups: Sequence[Configuration], nodes: int) -> str:
    """Name the software of a group: the output's own words first, then what its nodes have.

    Empty where NCCL's version is not known, or two of the `nodes` differ, or a version is known of some of them alone: such runs
    can be compared with none.
    """
    told = {"nccl": software.nccl, "ofi_plugin": software.plugin}
    words = []
    for fact, name in FROM_NODES.items():
        seen = [told[fact]] * nodes if told.get(fact) else [value for one in set_ups if (value := one.value(fact))]
        values = set(seen)
        if len(values) > 1 or (values and len(seen) < nodes) or (fact == "nccl" and not values):
            return ""
        words += [f"{name} {value}" for value in values]
    return ", ".join(words)


class BandwidthActivities:
    """What workflows write down about clean runs."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory

    @activity.defn
    def note_clean_runs(self, request: NoteCleanRuns) -> None:
        """Remember clean runs, each once."""
        with as_application_error():
            for key in dict.fromkeys(run.key for run in request.runs):
                mine = [run for run in request.runs if run.key == key]
                new = [CleanRun(run_id=run.run_id, at=request.at, busbw_gbs=run.busbw_gbs) for run in mine]
                remember_bandwidth(self._memory, key, partial(with_runs, new=new))
