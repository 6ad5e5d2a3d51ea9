"""Keeps the ledger of hosts and GPUs: what a look shows of them is written down, and their past is found wherever they were.

The past goes with the boards. An instance id that is new may be a host that was here before; one that was stopped and started
may be another host. Both are told by the serials of the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from activities.errors import BadInput, PreconditionFailed
from activities.gpu_records import KEPT_HOMES, GpuRecord, Home, HostGpu, Mark, same_host, with_mark
from activities.host_memory import HostMemory, HostRecord, RungAttempt, remember_gpu
from activities.inventory import Node
from checks.model import GpuRef
from checks.pci_address import canonical

SEEN_AGAIN = timedelta(days=1)
"""What has not changed is written down again after this long. Hotspare default: a sweep of 5 minutes writes nothing meanwhile."""

EARLIER_HOMES = 4
"""Instances that the boards of a host were seen in before, read at most, the last ones. Hotspare default: bounds one look."""

NO_SERIALS = ("", "0", "N/A")
"""What a driver says of a board that has no serial number."""


@dataclass(frozen=True)
class Boards:
    """What is remembered of the GPUs that a look has found. `earlier` are hosts in which some of them were before."""

    records: tuple[GpuRecord, ...] = ()
    earlier: tuple[HostRecord, ...] = ()

    @property
    def serials(self) -> set[str]:
        return {record.serial for record in self.records}

    def attempts(self) -> list[RungAttempt]:
        """Disruptive steps on these very boards, under other instance ids."""
        return [one for host in self.earlier for one in host.attempts if _was_there(self.records, host.instance_id, one.at)]


def boards_of(memory: HostMemory, instance_id: str, gpus: Iterable[GpuRef]) -> Boards:
    """Recall these GPUs, and the hosts that they came from."""
    serials = [gpu.serial for gpu in gpus if gpu.serial not in NO_SERIALS]
    if not serials:
        return Boards()
    records = tuple(memory.gpus(serials))
    homes = {home.instance_id: home.last_seen for record in records for home in record.homes if home.instance_id != instance_id}
    last = sorted(homes, key=lambda one: homes[one], reverse=True)[:EARLIER_HOMES]
    return Boards(records, tuple(memory.recall(one) for one in last))


def _was_there(boards: Iterable[GpuRecord], instance_id: str, at: datetime) -> bool:
    """Whether one of these boards was in that instance then. A sight is as good as a day on either side."""
    homes = (home for board in boards for home in board.homes if home.instance_id == instance_id)
    return any(home.first_seen - SEEN_AGAIN <= at <= home.last_seen + SEEN_AGAIN for home in homes)


def with_lost(gpus: Sequence[GpuRef], record: HostRecord, node: Node, booted_at: datetime | None) -> tuple[GpuRef, ...]:
    """Return the GPUs of a look, and those that host memory has at other addresses of the same host: a lost GPU has no serial."""
    if not _on_remembered_host(gpus, record, node, booted_at):
        return tuple(gpus)
    present = {canonical(gpu.pci) for gpu in gpus} | {gpu.serial for gpu in gpus}
    lost = [gpu for gpu in record.gpus if gpu.pci and canonical(gpu.pci) not in present and gpu.serial not in present]
    return (*gpus, *(GpuRef(uuid=gpu.uuid, pci=gpu.pci, serial=gpu.serial) for gpu in lost))


def _on_remembered_host(gpus: Sequence[GpuRef], record: HostRecord, node: Node, booted_at: datetime | None) -> bool:
    """Whether the node is on the host that its record tells of.

    Where no GPU could be asked, as after XID 79, the instance must have been started, or booted, before that was written down:
    EC2's launch time is that of the last start (EC2 API reference, Instance).
    """
    if gpus:
        return bool(same_host((gpu.serial for gpu in gpus), (gpu.serial for gpu in record.gpus)))
    since = [at for at in (booted_at, node.launched_at) if at is not None]
    return record.seen_at is not None and bool(since) and min(since) <= record.seen_at


def with_sight(record: HostRecord, node: Node, gpus: Sequence[GpuRef], now: datetime) -> HostRecord:
    """Return the record with name, place and GPUs of the host; as it was where nothing is new. A lost GPU stays the host's."""
    boards = {gpu.serial: HostGpu(serial=gpu.serial, uuid=gpu.uuid, pci=gpu.pci) for gpu in gpus if gpu.serial not in NO_SERIALS}
    known = {gpu.serial: gpu for gpu in record.gpus}
    if same_host(known, boards):
        taken = {canonical(gpu.pci) for gpu in boards.values()}
        boards |= {serial: gpu for serial, gpu in known.items() if serial not in boards and canonical(gpu.pci) not in taken}
    elif not boards:
        boards = known
    seen: dict[str, object] = {
        "name": node.name,
        "instance_type": node.instance_type or record.instance_type,
        "zone": node.zone or record.zone,
        "reservation": node.reservation or record.reservation,
        "gpus": [boards[serial] for serial in sorted(boards)],
        "gpu_serials": sorted(boards) or record.gpu_serials,
    }
    fresh = record.seen_at is not None and now - record.seen_at < SEEN_AGAIN
    if fresh and all(getattr(record, name) == value for name, value in seen.items()):
        return record
    return record.model_copy(update={**seen, "seen_at": now})


def note_boards(memory: HostMemory, node: Node, gpus: Sequence[GpuRef], known: Boards, now: datetime) -> None:
    """Write down in which host each GPU is; nothing where it was there a day ago already."""
    by_serial = {record.serial: record for record in known.records}
    for gpu in gpus:
        if gpu.serial in NO_SERIALS:
            continue
        before = by_serial.get(gpu.serial, GpuRecord(serial=gpu.serial))
        after = with_home(before, node, gpu.uuid, now)
        if after == before:
            continue
        try:
            memory.save_gpu(after)
        except PreconditionFailed:
            remember_gpu(memory, gpu.serial, lambda record, uuid=gpu.uuid: with_home(record, node, uuid, now))  # type: ignore[misc]


def with_home(record: GpuRecord, node: Node, uuid: str, now: datetime) -> GpuRecord:
    """Return the record with the GPU seen in a node; as it was where that is a known sight of today."""
    last = record.homes[-1] if record.homes else None
    if last is None or last.instance_id != node.instance_id:
        home = Home(
            instance_id=node.instance_id,
            name=node.name,
            zone=node.zone,
            reservation=node.reservation,
            first_seen=now,
            last_seen=now,
        )
        return record.model_copy(update={"uuid": uuid or record.uuid, "homes": [*record.homes, home][-KEPT_HOMES:]})
    if now - last.last_seen < SEEN_AGAIN:
        return record
    return record.model_copy(update={"homes": [*record.homes[:-1], last.model_copy(update={"last_seen": now})]})


def mark_gpu(memory: HostMemory, serial: str, *, bad: bool, by: str, why: str, now: datetime | None = None) -> GpuRecord:
    """Ban a GPU, or lift its ban, by a person's word. Raises BadInput where nobody says why."""
    if not why.strip():
        raise BadInput(f"GPU {serial}: say why with --why; who reads the ledger next wants to know")
    mark = Mark(at=now or datetime.now(UTC), bad=bad, by=by, why=why.strip())
    return remember_gpu(memory, serial, lambda record: with_mark(record, mark))
