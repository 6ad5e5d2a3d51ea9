"""FakeFleet: a whole cluster in memory behind the same protocols as the real one. Nothing waits in it, everything is counted.

It ships with the product, because workflow tests, replay and the simulator run the real activities over it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities import names
from activities.active_tests import ActiveTestGate
from activities.all_healers import AllHealers, KindOfHealers
from activities.auto_scaling import AutoScalingClient, AutoScalingHealers
from activities.briefing import BriefingActivities
from activities.burn_in import BurnInActivities
from activities.capacity import CapacityActivities, CapacityClient, Reservation
from activities.clients.evidence_store_folder import FolderEvidenceStore
from activities.clients.fake_access import FakeAccess, FakeRun
from activities.clients.fake_auto_scaling import FakeAutoScaling
from activities.clients.fake_capacity import FakeCapacity
from activities.clients.fake_ec2 import FakeEc2, FakeInventory
from activities.clients.fake_job import FakeJob
from activities.clients.fake_machine import FakeFault, FakeMachine
from activities.clients.fake_memory import FakeMemory
from activities.clients.fake_points import LOOK_S, Hold, Points
from activities.clients.fake_provision import FakeProvision
from activities.clients.fake_text import all_reduce_text, mpirun_unreachable_text
from activities.clock import beat
from activities.draining import DrainActivities, Drained, DrainNode
from activities.ec2 import Ec2Activities
from activities.eks_repair import EksClient, EksRepairHealers
from activities.errors import PreconditionFailed
from activities.evidence import EvidenceActivities, EvidenceCollector
from activities.evidence_asides import EvidenceSources
from activities.giving_up import GivingUpActivities
from activities.group_slots import GroupSlots
from activities.healers import HealerActivities
from activities.host_memory import HostMemoryActivities
from activities.incidents import IncidentActivities, WorkflowGateway
from activities.inventory import InventoryActivities, Node
from activities.jobs.activities import JobActivities
from activities.karpenter import KarpenterHealers
from activities.karpenter_claims import KarpenterClaims
from activities.kubernetes import KubernetesApi
from activities.kubernetes_healers import NodeObjects
from activities.learned_bandwidth import BandwidthActivities, LearnedFloors
from activities.node import NodeActivities
from activities.node_access import DetachedRun, NodeAccess
from activities.notify import NotifyActivities, Page
from activities.nvsentinel import NvSentinelHealers
from activities.owned_nodes import OwnedNodes
from activities.owner_slots import OwnerSlotActivities, SlotOwner
from activities.owners import Owner
from activities.parity import FleetParity, ParityActivities
from activities.probing import ChecksArchive, Probe
from activities.provisioning import Launch, ProvisioningActivities
from activities.quarantine import QUARANTINE_DIR, HeadFileMarks, QuarantineActivities, QuarantineMarks
from activities.reconcile import ReconcileActivities
from activities.settings import EffectSettings, EvidenceSettings, HealerSettings, ParitySettings, ProvisionSettings, StoreSettings
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings, LearnedSettings
from activities.settings_jobs import JobSettings
from activities.spare_records import SpareActivities, records_of
from activities.spare_work import PreemptibleSettings, SpareWorkActivities
from activities.stood_back import StoodBack

RAIL_BUSBW_GBS = 47.0
"""In-place bus bandwidth of one GPU a node over its own 400 Gb/s, which are 50 GB/s."""

SLOW_RAIL = 0.45
"""Share of its bandwidth that a slow rail leaves: to itself, and to the whole, which waits for it."""

GROUP_BUSBW_GBS = 470.0
"""In-place bus bandwidth of healthy p5.48xlarge nodes together at 16 GiB. Source: OCI troubleshooting page, 471."""


class FakeClock:
    """A clock that each thread turns for itself by waiting: a deadline of hours passes at once, and nobody else's does.

    It stands still while a call is held, so that nothing runs out of time before the test releases it.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        self._local = threading.local()

    def now(self) -> float:
        return float(getattr(self._local, "now", 0.0))

    def wait(self, seconds: float) -> None:
        if self._points.holding:
            time.sleep(LOOK_S)
            beat()
        else:
            self._local.now = self.now() + seconds


class FakeFleet:
    """Machines `node-1`..`node-N`, `spare-1`.. and `head`, with a job on the nodes.

    Points that can be counted, held or made to fail: reboot, stop, start_instance, set_tags, remove_tags, describe, status,
    boot_id, put, start, poll, kill, run.<command> (run.probe, run.quarantine_write, ...), group.start, group.poll, group.kill,
    job.find, job.status, job.hold, job.resume, job.supply, job.leave, drain, evict, drain_for_replacement, inventory, console,
    memory.recall, memory.save, memory.intent, memory.incident, memory.configuration, memory.freezes, memory.keep_freezes, page,
    group_member, enter_standby, exit_standby, terminate_in_group, reservation, launch, terminate.
    Each takes a node name, a job name or nothing.
    """

    def __init__(
        self,
        nodes: int = 4,
        spares: int = 1,
        instance_type: str = "p5.48xlarge",
        cluster: str = "lab",
        points: Points | None = None,
    ) -> None:
        self.cluster, self.instance_type = cluster, instance_type
        self.points = points or Points()
        self.clock = FakeClock(self.points)
        self.pages: list[Page] = []
        self._lock = threading.RLock()
        workers = [f"node-{number}" for number in range(1, nodes + 1)]
        roles = {**dict.fromkeys(workers, "worker"), **{f"spare-{n}": "spare" for n in range(1, spares + 1)}, "head": "head"}
        self._nodes = [self._entry(position, name, role) for position, (name, role) in enumerate(roles.items())]
        self.machines = {name: FakeMachine(name) for name in roles}
        self.ec2 = FakeEc2(self.machines, self._nodes, self.points, self._lock, self._work_ended)
        self.auto_scaling = FakeAutoScaling(self.points, self._lock, self.ec2.name_of, self._launch_in_group, self.ec2.terminate)
        self.groups: AutoScalingClient = self.auto_scaling
        self.reservations = FakeCapacity(self.points, self.ec2.running_in)
        self.capacity: CapacityClient = self.reservations
        self.provision = FakeProvision(self.points, self.reservations, self._launch, self.ec2.terminate)
        self.inventory = FakeInventory(self.ec2, self._nodes, self.points)
        self.memory = FakeMemory(self.points)
        self.job = FakeJob("train", workers, self.machines, self.points, self._lock, self.quarantined_at_head)
        self.group_runs: dict[str, FakeRun] = {}
        self.slow_paths: dict[frozenset[str], float] = {}
        """Share of the bus bandwidth that is left between two nodes; it shows where they are neighbours in the ring."""
        self.group_run_nodes: list[list[str]] = []
        self.parity_settings = ParitySettings()
        self.looks_per_run = 0
        self.absent_program = ""
        self.slow_rails: set[int] = set()
        self.rail_runs: list[tuple[int, list[str]]] = []
        self.drains = False
        self.drain_replaces = False
        self.kubernetes: KubernetesApi | None = None
        self.eks: EksClient | None = None
        self.looks_per_node_run = 0

    @property
    def entries(self) -> list[Node]:
        """The nodes as they were at first."""
        return list(self._nodes)

    def node(self, alias: str) -> Node:
        """Return the inventory entry behind an alias."""
        return self.inventory.resolve(self.cluster, alias)

    def machine(self, alias: str) -> FakeMachine:
        """Return the machine behind an alias."""
        return self.machines[self.node(alias).name]

    def join_group(self, group: str, *aliases: str, smallest: int = 0) -> None:
        """Make an Auto Scaling group of these nodes."""
        ids = [self.node(alias).instance_id for alias in aliases]
        self.auto_scaling.join(group, ids, smallest=smallest)
        for instance_id in ids:
            self.ec2.tags[instance_id][names.AWS_TAG_GROUP] = group

    def launch_for(self, role: str = names.ROLE_WORKER, **tags: str) -> str:
        """Launch an instance as an owner of nodes does, with its own tags; returns the instance id."""
        return self._launch(Launch(template="the owner's", tags={names.TAG_ROLE: role, **tags}))

    def reserve(self, reservation: Reservation, *aliases: str) -> None:
        """Have these nodes run in a reservation; it is active, and of the fleet's own account unless it says otherwise."""
        account = reservation.account or "111122223333"
        made = reservation.model_copy(update={"account": account, "state": reservation.state or "active"})
        self.reservations.reservations[made.reservation_id] = made
        self.ec2.reserved |= {self.node(alias).instance_id: made.reservation_id for alias in aliases}

    def inject(self, alias: str, fault: FakeFault) -> None:
        """Put a fault on a machine; a job that runs there stops when the fault kills work."""
        with self._lock:
            machine = self.machine(alias)
            machine.inject(fault)
            if not machine.up or fault.xid == 94 or not machine.can_work:
                self._work_ended(machine.name)

    def hold(self, point: str, node: str = "") -> Hold:
        """Stop the next calls at a point; see `Points.hold`."""
        return self.points.hold(point, node)

    def fail_next(self, point: str, error: Exception, times: int = 1, node: str = "") -> None:
        """Make the next calls at a point raise; see `Points.fail_next`."""
        self.points.fail_next(point, error, times, node)

    def count(self, point: str, node: str = "") -> int:
        """How many calls were carried out at a point."""
        return self.points.count(point, node)

    def access_to(self, node: Node) -> NodeAccess:
        """`AccessTo` of the fleet."""
        return FakeAccess(self.machines[node.name], node.instance_type, self.points, self._lock, lambda: self.looks_per_node_run)

    def quarantined_at_head(self, name: str) -> bool:
        """Whether the head node has the file that keeps the job off a node."""
        return f"{QUARANTINE_DIR}/{name}" in self.machines["head"].files

    def send(self, page: Page) -> None:
        """`Notifier.send` of the fleet: keeps the page."""
        self.points.carry_out("page", page.node, lambda: self.pages.append(page))

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        """`BurnInLauncher.start`: a known run is not started again."""
        self.points.carry_out("group.start", "", lambda: self._start_group(run_id, [node.name for node in nodes]))

    def start_over(self, rail: int, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        """`RailLauncher.start_over`."""
        members = [node.name for node in nodes]
        self.points.carry_out("group.start_over", "", lambda: self._start_over(rail, run_id, members))

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        """`BurnInLauncher.poll`."""
        return self.points.carry_out("group.poll", "", lambda: self._poll_group(run_id))

    def drain(self, request: DrainNode) -> Drained:
        """`Drainer.drain`: no pod is in the way, unless a test makes the point fail."""
        return self.points.carry_out("drain", request.node.name, lambda: Drained(said="no pod is left on it"))

    def replace_by_drain(self, node: Node, owner: str) -> None:
        """`Replacer.replace_by_drain`: the cluster's daemon terminates a drained node at its next look."""
        self.points.carry_out("drain_for_replacement", node.name, lambda: self._terminate(node, owner))

    def evict(self, node: Node) -> None:
        """`SpareWork.evict`: its processes leave the GPUs."""
        self.points.carry_out("evict", node.name, lambda: self._evict(node.name))

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        """`BurnInLauncher.kill`."""
        self.points.carry_out("group.kill", "", lambda: self._kill_group(run_id))

    def activities(self, gateway: WorkflowGateway, folder: Path) -> list[Callable[..., Any]]:
        """Return every activity over this fleet, ready for a worker. `folder` takes evidence and a stand-in for the archive."""
        archive = folder / "checks.tar.gz"
        archive.write_bytes(b"FakeFleet unpacks nothing")
        access, jobs = AccessSettings(), JobSettings(adapter="command", head="head")
        marks = QuarantineMarks(self.ec2, HeadFileMarks(jobs.head, self.access_to, self.inventory))
        probe = Probe(ChecksArchive(archive, "fake"), access)
        gate = self.gate(probe)
        healers = self.healers
        parity = FleetParity(self.memory, self.inventory, self.job, self.access_to, probe, self.parity_settings)
        holders: list[object] = [
            Ec2Activities(self.ec2, self.access_to, self.memory, EffectSettings(), self.clock),
            CapacityActivities(self.ec2, self.capacity, self.memory, EffectSettings(), self.clock),
            ProvisioningActivities(
                self.provision,
                self.ec2,
                self.memory,
                ProvisionSettings(templates={self.instance_type: "gpu"}),
                EffectSettings(),
                self.clock,
            ),
            NodeActivities(self.access_to, probe, gate, access, BurnInSettings(), self.memory, self.clock, parity),
            EvidenceActivities(self.evidence(probe, folder)),
            ParityActivities(parity, self.inventory, self.memory),
            QuarantineActivities(marks),
            JobActivities(self.job, self.inventory, marks, jobs, self.clock),
            BurnInActivities(self, gate, BurnInSettings(), self.clock, LearnedFloors(self.memory, LearnedSettings())),
            HostMemoryActivities(self.memory),
            BandwidthActivities(self.memory),
            NotifyActivities(self),
            InventoryActivities(self.inventory, lambda nodes: records_of(self.memory, nodes)),
            SpareActivities(self.memory),
            SpareWorkActivities(self, gate, PreemptibleSettings(evict=["evict", "{node}"]), self.clock),
            BriefingActivities(self.inventory, self.memory, healers, self.drains, self),
            GivingUpActivities(self, self.ec2, EffectSettings(), self.clock),
            self.owner_slots,
            DrainActivities(self),
            HealerActivities(healers),
            ReconcileActivities(self.ec2, self.inventory, marks, self.memory, self.job),
            IncidentActivities(gateway),
        ]
        return [activity for holder in holders for activity in activities_of(holder)]

    def evidence(self, probe: Probe, folder: Path, settings: EvidenceSettings | None = None) -> EvidenceCollector:
        """What gathers evidence bundles, into `folder`."""
        settings = settings or EvidenceSettings(serial_key=folder / "evidence-serial.key")
        store = FolderEvidenceStore(folder / "evidence")
        sources = EvidenceSources(
            self.access_to, probe, self.memory, self.ec2, self.job, lambda: self.access_to(self.node("head"))
        )
        places = StoreSettings(evidence_dir=folder / "evidence")
        return EvidenceCollector(sources, store, store, AccessSettings(), settings, places, self.clock)

    @property
    def healers(self) -> AllHealers:
        """Who else repairs the nodes: Auto Scaling groups, and those of Kubernetes where a test has put one there."""
        record = StoodBack(self.ec2)
        kinds: list[KindOfHealers] = []
        if self.kubernetes is not None:
            nodes = NodeObjects(self.kubernetes)
            kinds += [OwnedNodes(nodes), NvSentinelHealers(self.kubernetes, nodes, record)]
            kinds.append(KarpenterHealers(self.kubernetes, nodes, record, HealerSettings()))
            if self.eks is not None:
                kinds.append(EksRepairHealers(self.eks, self.ec2, nodes, "train", may_pause=True, clock=self.clock))
        return AllHealers([*kinds, AutoScalingHealers(self.groups, self.ec2, self.clock)], record)

    @property
    def owner_slots(self) -> OwnerSlotActivities:
        """What gives slots back to Auto Scaling groups, and to Karpenter where a test has put it there."""
        groups = GroupSlots(self.groups)
        owners: dict[Owner, SlotOwner] = {Owner.GROUP: groups, Owner.NODE_GROUP: groups}
        if self.kubernetes is not None:
            owners[Owner.KARPENTER] = KarpenterClaims(self.kubernetes)
        return OwnerSlotActivities(owners, self.ec2, self.memory, EffectSettings(), self.clock)

    def gate(self, probe: Probe) -> ActiveTestGate:
        """What the load tests ask before they start a run."""
        return ActiveTestGate(self.access_to, probe, self.job, self.inventory, self.ec2)

    def _start_group(self, run_id: str, members: list[str]) -> None:
        with self._lock:
            if run_id in self.group_runs:
                return
            self.group_run_nodes.append(members)
            self.group_runs[run_id] = self._group_run(members)

    def _start_over(self, rail: int, run_id: str, members: list[str]) -> None:
        with self._lock:
            if run_id not in self.group_runs:
                self.rail_runs.append((rail, members))
                busbw = RAIL_BUSBW_GBS * (SLOW_RAIL if rail in self.slow_rails else 1.0)
                self.group_runs[run_id] = FakeRun(all_reduce_text(members, 1, busbw), 0, self.looks_per_run)

    def _poll_group(self, run_id: str) -> DetachedRun:
        with self._lock:
            run = self.group_runs.get(run_id)
            return run.poll(run_id) if run else DetachedRun(run_id=run_id, known=False)

    def _evict(self, name: str) -> None:
        with self._lock:
            self.machine(name).gpu_processes = 0

    def _kill_group(self, run_id: str) -> None:
        with self._lock:
            if run := self.group_runs.get(run_id):
                run.lose()

    def _group_run(self, members: list[str]) -> FakeRun:
        if self.absent_program:
            return FakeRun(f"{self.absent_program}: No such file or directory\n", 127)
        machines = [self.machines[name] for name in members]
        for machine in machines:
            try:
                machine.answer()
            except Exception:  # whatever keeps it from answering, mpirun says the same
                return FakeRun(mpirun_unreachable_text(machine.name), 1, self.looks_per_run)
        wrong = max(fault.wrong for machine in machines for fault in [*machine.faults, FakeFault()])
        kind = "inter" if len(members) > 1 else "intra"
        ring = [frozenset(pair) for pair in zip(members, [*members[1:], members[0]], strict=True)]
        shares = [*(machine.share(kind) for machine in machines), *(self.slow_paths.get(path, 1.0) for path in ring)]
        shares += [SLOW_RAIL] if self.slow_rails and len(members) > 1 else []
        busbw = GROUP_BUSBW_GBS * min(shares)
        return FakeRun(all_reduce_text(members, 8, busbw, wrong), 1 if wrong else 0, self.looks_per_run)

    def _terminate(self, node: Node, owner: str) -> None:
        with self._lock:
            file = self.machines["head"].files.get(f"{QUARANTINE_DIR}/{node.name}", "")
            if owner not in file:
                raise PreconditionFailed(f"{node.name} is not quarantined by {owner}, so it is not given up")
            machine = self.machines[node.name]
            if machine.gpu_processes:
                raise PreconditionFailed(f"a job is still on {node.name}; hold it first")
            machine.halt()
            machine.state = "terminated"
            self._work_ended(node.name)

    def _work_ended(self, name: str) -> None:
        if name in self.job.nodes:
            self.job.stop()

    def _launch(self, wanted: Launch) -> str:
        """Make a machine in pool of nobody yet, as a launch does."""
        with self._lock:
            position = len(self._nodes)
            node = self._entry(position, f"new-{position + 1}", names.ROLE_NEW)
            self.machines[node.name] = FakeMachine(node.name)
            self.ec2.add(node, wanted.tags)
            self._nodes.append(node)
            self.ec2.launched[node.instance_id] = datetime.now(UTC)
            if wanted.reservation:
                self.ec2.reserved[node.instance_id] = wanted.reservation
            return node.instance_id

    def _launch_in_group(self, group: str) -> str:
        return self.launch_for(**{names.AWS_TAG_GROUP: group})

    def _entry(self, position: int, name: str, role: str) -> Node:
        ip = f"10.0.0.{position + 11}"
        return Node(
            instance_id=f"i-{position + 1:017x}",
            name=name,
            ip=ip,
            host=f"ip-{ip.replace('.', '-')}",
            role=role,
            instance_type=self.instance_type if role != "head" else "c7i.2xlarge",
            zone="us-east-1a",
            gpus=8 if role != "head" else 0,
        )


def activities_of(holder: object) -> list[Callable[..., Any]]:
    """Return the activity methods of an activity class's instance."""
    found = [getattr(holder, name) for name in sorted(dir(holder)) if not name.startswith("_")]
    return [method for method in found if hasattr(method, "__temporal_activity_definition")]
