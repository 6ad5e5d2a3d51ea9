"""What an incident knows when it decides: the whole input of the policy, recorded in history with each decision."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from activities.capacity import Slot
from activities.host_memory import HostRecord
from activities.inventory import Node
from activities.message import Message
from activities.node import Examination, Opinion
from activities.owners import Owner
from checks.model import Action, Verdict


class RungOutcome(StrEnum):
    """What became of a rung in this incident."""

    HELPED = "helped"
    DID_NOT_HELP = "did not help"
    FAILED = "failed"
    REFUSED = "refused"


class RungTaken(Message):
    """A rung of the ladder that this incident is through with."""

    rung: Action
    outcome: RungOutcome
    detail: str = ""


class Spare(StrEnum):
    """How far a replacement is."""

    NOT_ASKED = "not asked"
    NONE_SEEN = "none seen free"
    NONE_FREE = "none free"
    READY = "ready"


class OtherHealers(Message):
    """Who else repairs the node; whether they were asked to stand back, whether they do, and why they could not be told.

    `owns`: why nobody but the node's owner may disrupt or replace it; its jobs are still resumed. `doubts`: why it is not known
    of some whether they are there; they are asked as if they were.
    """

    found: list[str] = []
    doubts: list[str] = []
    owns: str = ""
    asked: bool = False
    told: bool = False
    refused: str = ""


class Facts(Message):
    """The state of one incident. Absent evidence is None, never a default that looks like health.

    `incident` is the workflow id, which the node's next incident shares; `run` names this incident alone. `gpus_waiting` are the
    GPUs of the job that holds the node; `gpu_hours_at_stake` is what it would lose back to its last checkpoint if stopped now.
    `job_controller` is who restarts that job where it is not Hotspare: then whatever comes in is proven before it may be used, by
    `proof` (for the node itself `burn_in`). `drains`: pods are to be moved off the node before it restarts.
    `drain_replaces`: its cluster replaces a node that is drained; `not_drained`: why a drain that was to do so did not.
    `owned_by`: who launched the node's instance and replaces it. `slot`: the capacity it runs in, as seen at `slot_at`.
    `retired`: this incident has retired it; `renewed`: who launches another in its place. `no_capacity`: why EC2 did not start it
    again after a stop, since `no_capacity_since`.
    """

    cluster: str
    incident: str
    run: str
    node: Node
    now: datetime
    record: HostRecord
    opinion: Opinion | None = None
    examination: Examination | None = None
    unreadable_probes: int = 0
    second_signal: str = ""
    disrupted: bool = False
    fault_gone: bool = False
    quarantine_room: bool = False
    quarantined: bool = False
    alone: bool = False
    storm: str = ""
    storm_id: str = ""
    storm_joined: bool = False
    refused: str = ""
    evidence_taken: bool = False
    evidence_uri: str = ""
    job: str = ""
    job_running: bool = False
    job_controller: str = ""
    gpus_waiting: int = 0
    gpu_hours_at_stake: float = 0.0
    job_checkpoint_step: int | None = None
    boundary_reached: bool = False
    job_told: bool = False
    job_answered: bool = False
    job_done: bool = False
    job_outcome: str = ""
    retest: Verdict | None = None
    retest_because: list[str] = []
    spare: Spare = Spare.NOT_ASKED
    spare_name: str = ""
    spare_reason: str = ""
    proof: Verdict | None = None
    proof_because: list[str] = []
    drains: bool = False
    drained: bool = False
    drain_replaces: bool = False
    not_drained: str = ""
    taken: list[RungTaken] = []
    rung_in_test: str = ""
    stuck: str = ""
    skipped_steps: list[str] = []
    approved: list[Action] = []
    escalations: int = 0
    person_owns: bool = False
    back_in_service: bool = False
    settled: bool = False
    burn_in: Verdict | None = None
    paged: list[str] = []
    left_by_earlier: bool = False
    inherited: bool = False
    asked_by_hand: bool = False
    asked_rung: str = ""
    asked_since: datetime | None = None
    others: OtherHealers = OtherHealers()
    owned_by: Owner = Owner.EC2
    slot: Slot | None = None
    slot_at: datetime | None = None
    retired: bool = False
    renewed: str = ""
    no_capacity: str = ""
    no_capacity_since: datetime | None = None


class StepKind(StrEnum):
    """Every step that an incident can take next."""

    EXAMINE = "examine"
    ASK_ALONE = "ask whether it is alone"
    JOIN_STORM = "join the storm"
    AWAIT_BOUNDARY = "await the job's boundary"
    ASK_LEAVE = "ask leave to quarantine"
    QUARANTINE = "quarantine"
    COLLECT_EVIDENCE = "collect evidence"
    TELL_JOB = "tell the job"
    REPLACE = "replace"
    PROVE_SPARE = "prove the spare"
    BRING_IN = "bring in the spare"
    STAND_BACK = "have others stand back"
    DRAIN = "drain"
    LOOK_AT_SLOT = "look at its slot"
    DISRUPT = "disrupt"
    AWAIT_CAPACITY = "await capacity"
    RETEST = "re-test"
    BURN_IN = "burn in"
    BACK_IN_SERVICE = "back in service"
    GIVE_UP_NODE = "give up the node"
    AWAIT_JOB = "await the job"
    REPLACE_BY_DRAIN = "replace by a drain"
    RETURN_TO_POOL = "return to the pool"
    RETIRE = "retire"
    RENEW = "renew"
    ASK_PERSON = "ask a person"
    CLOSE = "close"


class Step(Message):
    """The next step and why. `rung` goes with DISRUPT and ASK_PERSON, `outcome` with CLOSE, `deadline_s` with a wait.

    `pause_s` is how long is waited before a step that tries again. `waits` goes with REPLACE: nothing else can be done meanwhile.
    """

    kind: StepKind
    because: list[str]
    rung: Action | None = None
    outcome: str = ""
    deadline_s: float = 0.0
    settling_s: float = 0.0
    pause_s: float = 0.0
    page: str = ""
    waits: bool = False
    policy_hash: str = ""
