"""Messages to and from Cluster, and its books: asks, answers, grants, storms, breaker, freezes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from activities.host_memory import Freeze
from activities.inventory import Node
from activities.message import Message


class AskKind(StrEnum):
    """What Cluster is asked for: whether a fault is alone, leave to quarantine, leave for one disruptive step, a spare.

    PARTNER lends idle spares for a burn-in: they stay in the pool, and nobody leases them meanwhile.
    """

    ALONE = "alone"
    NODE_OUT = "node_out"
    REPAIR_SLOT = "repair_slot"
    SPARE = "spare"
    PARTNER = "partner"


class Ask(Message):
    """A request to Cluster. Asking again with the same `request_id` gets the same answer. `asker` is a workflow id.

    `accused`: the burn-in of a held job failed on this node. Taking it out is part of that job's recovery. `impact` is how many
    GPUs wait for this ask: who waits with more goes first. `asked_at` is when Cluster first saw it, `waits_for` why
    it is queued. `uptime_s` tells a fault that came with the boot. `since` is when the asker first had to wait for the same: what
    is asked for anew keeps its place, and is no new fault. `partners` is how many nodes an ask for partners wants at most,
    `only` the one that it wants. `waits`: an ask for a spare waits for one that may come back, since there is nothing else to do.
    """

    request_id: str
    asker: str
    kind: AskKind
    instance_id: str
    node_name: str = ""
    fault_class: str = ""
    code: int | None = None
    job: str = ""
    zone: str = ""
    spine: str = ""
    placement_group: str = ""
    nvlink_domain: str = ""
    pool: str = ""
    instance_type: str = ""
    unwanted: list[str] = []
    accused: bool = False
    impact: int = 0
    asked_at: datetime | None = None
    waits_for: str = ""
    uptime_s: float | None = None
    since: datetime | None = None
    partners: int = 0
    only: str = ""
    waits: bool = False


class Alone(StrEnum):
    """Cluster's view of the fault: this node alone, or one event that shows on many."""

    ALONE = "alone"
    STORM = "storm"


class Answer(Message):
    """Cluster's answer to an Ask. A refusal with `queued` will be followed by a grant when room appears.

    `spare_free` goes with leave to quarantine: whether a spare was seen free, so that nobody asks for one in vain. `unanswered`
    is not Cluster's: the asker's own note that no answer came. A second answer to the same request that does not grant takes a
    grant back. `storm_id` names the storm that the fault is part of, `storm_known` says that it knows this node.
    """

    request_id: str
    kind: AskKind
    granted: bool
    reason: str
    alone: Alone = Alone.ALONE
    queued: bool = False
    spare: Node | None = None
    granted_at: datetime | None = None
    spare_free: bool = True
    unanswered: bool = False
    storm_id: str = ""
    storm_known: bool = False
    partners: list[Node] = []


class GiveBack(Message):
    """Capacity that comes back; never waits for an answer. Unknown request ids are ignored: giving back twice is no error.

    `healed` says whether the repair helped where that is known: the breaker goes by it.
    """

    asker: str
    request_ids: list[str]
    healed: bool | None = None


class Grant(Message):
    """One thing that Cluster has handed out, under the id of the request that asked for it. `partners` are instance ids."""

    request_id: str
    asker: str
    kind: AskKind
    instance_id: str
    spare_id: str = ""
    granted_at: datetime
    job: str = ""
    domains: list[str] = []
    pool: str = ""
    partners: list[str] = []


class Holding(Message):
    """What a holder says it holds when a recovering Cluster asks; empty when it holds nothing."""

    asker: str
    grants: list[Grant] = []


class SayHolding(Message):
    """Cluster to a holder: say what you hold."""

    cluster: str


class SeenFault(Message):
    """One node's fault as Cluster remembers it for the storm question."""

    instance_id: str
    fault_class: str
    at: datetime
    code: int | None = None
    domains: list[str] = []
    job: str = ""
    uptime_s: float | None = None


class OpenStorm(Message):
    """One event that shows on many nodes, as Cluster remembers it.

    `since` is when it was recognised, `last_seen` when the last new node showed it. `members` are the nodes that show it: what is
    reported of them again is no news.
    """

    storm_id: str
    fault_class: str
    scope: str
    reason: str
    since: datetime
    last_seen: datetime
    members: list[str] = []


class BreakerState(StrEnum):
    """CLOSED: disruption may begin. OPEN: none does. HALF_OPEN: one node at a time, as a trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker(Message):
    """The breaker: it stops new disruption after a burst of faults or a row of repairs that did not help.

    `since` is when the state began, `reason` why it tripped. `trial` is the instance id of the node tried while half-open.
    `failures` are the times of repairs in a row that did not help. `told` says that people were paged for this opening.
    """

    state: BreakerState = BreakerState.CLOSED
    since: datetime | None = None
    reason: str = ""
    trial: str = ""
    failures: list[datetime] = []
    told: bool = False


class RepairEnd(Message):
    """A node came back, or was given up: `healed` is None where it was neither, such as after a cancel."""

    instance_id: str
    healed: bool | None = None


class FleetView(Message):
    """How many nodes there are: in all, per failure domain, and usable per pool.

    `quarantined` are those among the usable that bear a quarantine, whoever's, each with its pool; `opted_out` has the reasons.
    """

    nodes: int = 0
    domains: dict[str, int] = {}
    pools: dict[str, int] = {}
    quarantined: dict[str, str] = {}
    opted_out: dict[str, str] = {}


class ClusterState(Message):
    """What Cluster carries over continue-as-new. `fleet` is the number of nodes that can be out, `view` says more of them.

    `ended` are repairs that the breaker has not counted yet. `queue_told_at` is when people were last told of asks that wait.
    """

    grants: list[Grant] = []
    freezes: list[Freeze] = []
    queue: list[Ask] = []
    recent: list[SeenFault] = []
    storms: list[OpenStorm] = []
    outbox: list[tuple[str, Answer]] = []
    fleet: int = 0
    view: FleetView = FleetView()
    breaker: Breaker = Breaker()
    ended: list[RepairEnd] = []
    queue_told_at: datetime | None = None


class ClusterStart(Message):
    """Input of Cluster. Without `state` it is recovering. The lists are messages that were not worked off before a new run."""

    cluster: str = ""
    state: ClusterState | None = None
    asks: list[Ask] = []
    back: list[GiveBack] = []
    heard: list[Holding] = []


class Overview(Message):
    """Cluster's answer to the `overview` query."""

    recovering: bool
    state: ClusterState


class FreezeRequest(Message):
    """Stop new disruption within `scope` for `minutes`."""

    scope: str = "cluster"
    minutes: float = 60.0
    who: str
    why: str = ""


class ThawRequest(Message):
    """End a freeze."""

    scope: str = "cluster"
    who: str
