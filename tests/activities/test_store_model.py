"""Host memory against a model: whatever is written and read in whatever order, every store answers as a dictionary would."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from activities.clients.fake_memory import FakeMemory
from activities.clients.sqlite_memory import SqliteMemory
from activities.errors import PreconditionFailed
from activities.gpu_records import GpuRecord
from activities.host_memory import ClosedIncident, HostMemory, HostRecord
from tests.activities.dynamo_server import DynamoServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = st.sampled_from(["i-1", "i-2", "i-3"])
VERSIONS = st.integers(0, 4)


class StoreMachine(RuleBasedStateMachine):
    """One store beside a model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = self.make()
        self.hosts: dict[str, HostRecord] = {}
        self.boards: dict[str, GpuRecord] = {}
        self.ended: dict[tuple[str, str], ClosedIncident] = {}
        self.tokens: set[str] = set()

    def make(self) -> HostMemory:
        """A new store."""
        raise NotImplementedError

    @rule(name=NAMES, version=VERSIONS, strikes=st.integers(0, 9))
    def save(self, name: str, version: int, strikes: int) -> None:
        record = HostRecord(instance_id=name, version=version, strikes=strikes)
        if version != (self.hosts[name].version if name in self.hosts else 0):
            with pytest.raises(PreconditionFailed):
                self.memory.save(record)
            return
        self.hosts[name] = self.memory.save(record)
        assert self.hosts[name].version == version + 1

    @rule(name=NAMES, version=VERSIONS, uuid=st.sampled_from(["a", "b"]))
    def save_gpu(self, name: str, version: int, uuid: str) -> None:
        record = GpuRecord(serial=name, version=version, uuid=uuid)
        if version != (self.boards[name].version if name in self.boards else 0):
            with pytest.raises(PreconditionFailed):
                self.memory.save_gpu(record)
            return
        self.boards[name] = self.memory.save_gpu(record)

    @rule(name=NAMES, run=st.sampled_from(["r1", "r2", "r3"]), minutes=st.integers(0, 5))
    def close(self, name: str, run: str, minutes: int) -> None:
        closed = ClosedIncident(
            incident=f"incident/lab/{name}",
            run_id=run,
            cluster="lab",
            instance_id=name,
            opened_at=NOON,
            closed_at=NOON + timedelta(minutes=minutes),
            fault_class="gpu_lost",
            outcome="resolved",
        )
        self.memory.save_incident(closed)
        self.ended[name, run] = closed

    @rule(token=st.sampled_from(["t1", "t2"]))
    def note(self, token: str) -> None:
        assert self.memory.note_intent(token, "reboot") is (token not in self.tokens)
        self.tokens.add(token)

    @rule(token=st.sampled_from(["t1", "t2"]))
    def withdraw(self, token: str) -> None:
        self.memory.withdraw_intent(token)
        self.tokens.discard(token)

    @rule(wanted=st.lists(NAMES, max_size=4))
    def ask(self, wanted: list[str]) -> None:
        assert self.memory.gpus(wanted) == [self.boards[name] for name in sorted(set(wanted)) if name in self.boards]
        for name in wanted:
            assert self.memory.recall(name) == self.hosts.get(name, HostRecord(instance_id=name))
            mine = [closed for (host, _), closed in self.ended.items() if host == name]
            times = sorted((closed.closed_at for closed in mine), reverse=True)
            assert [closed.closed_at for closed in self.memory.incidents(name)] == times

    @rule()
    def list_all(self) -> None:
        assert self.memory.records() == [self.hosts[name] for name in sorted(self.hosts)]
        assert self.memory.gpus() == [self.boards[name] for name in sorted(self.boards)]
        found = self.memory.incidents()
        assert {(one.instance_id, one.run_id) for one in found} == set(self.ended)
        assert all((self.memory.intent_age_s(token) is not None) is (token in self.tokens) for token in ("t1", "t2"))


@pytest.mark.parametrize(("kind", "examples"), [("fake", 100), ("sqlite", 15), ("dynamodb", 5)])
def test_a_store_answers_as_a_dictionary_would(kind: str, examples: int, dynamo: DynamoServer, tmp_path: Path) -> None:
    class Machine(StoreMachine):
        def make(self) -> HostMemory:
            if kind == "fake":
                return FakeMemory()
            if kind == "dynamodb":
                return dynamo.memory()
            return SqliteMemory(Path(tempfile.mkdtemp(dir=tmp_path)) / "memory.sqlite3")

    some = settings(max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Machine, settings=some)
