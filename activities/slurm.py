"""Slurm as Hotspare speaks to it: scontrol, squeue and sinfo on the head node, their JSON of every release, its names for nodes.

The shapes read here: Slurm 22.05 (plain numbers and one state word with `state_flags`) and those since 23.02 (numbers as `{set,
infinite, number}`, lists of states). Source: the data_parser plugins in SchedMD/slurm; 22.05.8 was run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from activities.errors import BadInput, CapabilityMissing, CommandFailed, PreconditionFailed
from activities.inventory import Inventory, Node
from activities.message import Message
from activities.node_access import NodeAccess
from activities.settings_jobs import SlurmSettings

COMMAND_DEADLINE_S = 30.0
"""Seconds for one command; slurmctld's own MessageTimeout is 10 s. Hotspare default."""

JSON_LIMIT = 64_000_000
"""Characters of one answer: a node takes about 1,500, and there may be 10,000."""

UNUSABLE = frozenset({"NOT_RESPONDING", "UNKNOWN", "ERROR", "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
"""States that no `state=resume` ends, and in which Slurm starts nothing on a node. DOWN is none of them: a node that was rebooted
stays DOWN after its slurmd has registered, as long as its reason is not Slurm's own "Not responding" (ReturnToService)."""

SLURM_ITSELF = ("Not responding", "Node unexpectedly rebooted", "gres/gpu count reported lower")
"""Begin of the reasons that slurmctld itself gives a node that is silent, came back by surprise, or registers without a GPU."""

ENDLESS_DAYS = 300
"""Days from which a reservation counts as one without an end. Hotspare default: most of Slurm's year."""

_REFUSALS = {
    "Access/permission denied": "the user on the head node must be Slurm's operator, or set [slurm] sudo = true",
    "Invalid user id": "the user on the head node must be Slurm's operator, or set [slurm] sudo = true",
    "Invalid node name": "this Slurm has no such node",
    "Invalid job id": "Slurm forgets a job that has ended after MinJobAge",
    "Requested operation is presently disabled": "the job was submitted with --no-requeue (scontrol update jobid=JOB Requeue=1)",
    "is not a batch job": "only batch jobs can be requeued",
    "Only batch jobs are accepted": "only batch jobs can be requeued",
}


class SlurmNode(Message):
    """One node as Slurm sees it: its NodeName, where it is, the words of its state, and the reason for it."""

    name: str
    hostname: str = ""
    address: str = ""
    instance_id: str = ""
    states: frozenset[str] = frozenset()
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether Slurm would start work here once the node is resumed: its slurmd answers with all that it should have."""
        return not self.states & UNUSABLE

    @property
    def kept_off(self) -> bool:
        """Whether somebody keeps new work off: drained the node, set it to fail or down. What Slurm does by itself is no wish."""
        kept = bool(self.states & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
        return (kept or ("DOWN" in self.states and bool(self.reason))) and not self.reason.startswith(SLURM_ITSELF)


class Slurm:
    """Slurm's commands on the head node, as argument lists. `access_to_head` is asked at each call: its address may change."""

    def __init__(
        self, access_to_head: Callable[[], NodeAccess], inventory: Inventory, settings: SlurmSettings, cluster: str = ""
    ) -> None:
        self.access_to_head = access_to_head
        self._inventory = inventory
        self._settings = settings
        self._cluster = cluster
        self._scontrol_has_json: bool | None = None
        self._expanded: dict[str, list[str]] = {}

    def change(self, *words: str) -> None:
        """Run scontrol, which prints nothing when it did what it was told."""
        self._run("scontrol", [*words], sudo=self._settings.sudo)

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        self._run("scancel", [job], sudo=self._settings.sudo)

    def cancel_named(self, name: str) -> None:
        """Cancel every job of this name; that there is none is no error."""
        self._run("scancel", [f"--name={name}"], sudo=self._settings.sudo)

    def states_named(self, name: str) -> list[str]:
        """The states of the jobs of this name that have not ended, such as RUNNING."""
        return self._run("squeue", ["--noheader", f"--name={name}", "--format=%T"]).split()

    def reservations(self) -> set[str]:
        """The names of all reservations."""
        shown = self._run("scontrol", ["--oneliner", "show", "reservations"], sudo=self._settings.sudo)
        return {line.split()[0].partition("=")[2] for line in shown.splitlines() if line.startswith("ReservationName=")}

    def endless_on(self, reservation: str) -> list[str]:
        """The nodes of a reservation that has no end yet; none where it has one, or there is none of this name."""
        shown = self._run("scontrol", ["--oneliner", "show", "reservations"], sudo=self._settings.sudo)
        for line in shown.splitlines():
            told = dict(word.partition("=")[::2] for word in line.split())
            if told.get("ReservationName") == reservation and _is_endless(told.get("Duration", "")):
                return self.expand(told.get("Nodes", ""))
        return []

    def config(self) -> dict[str, str]:
        """What slurmctld goes by, by the names of slurm.conf."""
        pairs = (line.partition("=") for line in self._run("scontrol", ["show", "config"]).splitlines())
        return {name.strip(): value.strip() for name, sign, value in pairs if sign}

    def user(self) -> str:
        """Who we are on the head node."""
        return self.access_to_head().run(["id", "-un"], COMMAND_DEADLINE_S).stdout.strip()

    def runs_as_root(self, program: str) -> bool:
        """Whether sudo lets us run a program of Slurm without a password. It only prints its version."""
        return self.access_to_head().run(self._command(program, ["--version"], sudo=True), COMMAND_DEADLINE_S).exit_status == 0

    def jobs(self) -> list[dict[str, Any]]:
        """Every job that slurmctld still knows, ended ones included (22.05 answers with all, whatever is asked)."""
        return list(self._json("squeue", ["--json", "--states=all"]).get("jobs", []))

    def steps(self, job: str) -> list[str]:
        """The steps of a job that have not ended."""
        shown = self._run("squeue", ["--steps", "--noheader", f"--jobs={job}", "--format=%i"])
        return [line.strip() for line in shown.splitlines() if line.strip().split(".")[0] == job]

    def nodes(self) -> list[SlurmNode]:
        """Every node. `scontrol show nodes --json` came with 23.02; before it `sinfo --json` has the same rows."""
        if self._scontrol_has_json is not False:
            try:
                rows = self._json("scontrol", ["show", "nodes", "--json"])["nodes"]
                self._scontrol_has_json = True
                return [_node(row) for row in rows]
            except CommandFailed as error:
                if "--json" not in str(error):
                    raise
                self._scontrol_has_json = False
        return [_node(row) for row in self._json("sinfo", ["--json"]).get("nodes", [])]

    def expand(self, expression: str) -> list[str]:
        """Return the node names of a host list such as p5-st-[1-4], in its order."""
        if not expression:
            return []
        if "[" not in expression:
            return expression.split(",")
        if expression not in self._expanded:
            self._expanded[expression] = self._run("scontrol", ["show", "hostnames", expression]).split()
        return list(self._expanded[expression])

    def names(self) -> NodeNames:
        """Look up which Slurm node is which node of the inventory."""
        return NodeNames(self.nodes(), self._inventory.list(self._cluster))

    def _json(self, program: str, words: list[str]) -> dict[str, Any]:
        text = self._run(program, words)
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise BadInput(f"{program} {' '.join(words)} did not print JSON ({error}): {text.strip()[-200:]!r}") from error
        if errors := answer.get("errors"):
            raise CommandFailed(f"{program} {' '.join(words)}: {str(errors)[:300]}")
        return answer

    def _run(self, program: str, words: list[str], *, sudo: bool = False) -> str:
        answer = self.access_to_head().run(self._command(program, words, sudo=sudo), COMMAND_DEADLINE_S, JSON_LIMIT)
        if answer.exit_status == 0:
            return answer.stdout
        said = _last(answer.stderr, answer.stdout)
        message = f"{program} {' '.join(words)[:200]}: {said} (status {answer.exit_status})"
        for words_of_slurm, meaning in _REFUSALS.items():
            if words_of_slurm.lower() in said.lower():
                kind = CapabilityMissing if "batch" in meaning or "requeue" in meaning else PreconditionFailed
                raise kind(f"{message}; {meaning}")
        raise CommandFailed(message)

    def _command(self, program: str, words: list[str], *, sudo: bool) -> list[str]:
        folder = self._settings.bin_dir
        return [*(["sudo", "-n"] if sudo else []), f"{folder}/{program}" if folder else program, *words]


class NodeNames:
    """Which Slurm node is which node of the inventory.

    The instance id counts first (Slurm has it where slurmd was told), then address and host name, then the name itself: on
    ParallelCluster a Slurm node keeps its name while another instance takes its place.
    """

    def __init__(self, nodes: Iterable[SlurmNode], inventory: Iterable[Node]) -> None:
        self.by_name = {node.name: node for node in nodes}
        self._known = list(inventory)
        self._to_slurm: dict[str, str] = {}
        self._to_inventory: dict[str, str] = {}
        for signs in (_by_instance, _by_address, _by_host_name, _by_name):
            self._match(signs)

    def _match(self, signs: Callable[[Node | SlurmNode], set[str]]) -> None:
        """Pair what is not yet paired where exactly one on each side has a sign."""
        free = [node for node in self._known if node.instance_id not in self._to_slurm]
        slurm = [node for node in self.by_name.values() if node.name not in self._to_inventory]
        holders: dict[str, list[SlurmNode]] = {}
        for there in slurm:
            for sign in signs(there):
                holders.setdefault(sign, []).append(there)
        for node in free:
            found = {there.name for sign in signs(node) for there in holders.get(sign, []) if len(holders[sign]) == 1}
            if len(found) == 1 and (name := found.pop()) not in self._to_inventory:
                self._to_slurm[node.instance_id] = name
                self._to_inventory[name] = node.name

    def slurm(self, node: Node) -> SlurmNode | None:
        """Return the Slurm node, None where this Slurm has none for it."""
        name = self._to_slurm.get(node.instance_id)
        return self.by_name[name] if name else None

    def slurm_name(self, inventory_name: str) -> str:
        """Return the NodeName of an inventory name. Raises BadInput."""
        for name, known in self._to_inventory.items():
            if known == inventory_name:
                return name
        raise BadInput(f"Slurm has no node for {inventory_name}; its nodes: {', '.join(sorted(self.by_name)[:20])}")

    def node(self, slurm_name: str) -> Node | None:
        """Return the inventory's node, None where it lacks it."""
        return next((node for node in self._known if self._to_slurm.get(node.instance_id) == slurm_name), None)

    def inventory_name(self, slurm_name: str) -> str:
        """Return the inventory's name; a node that the inventory lacks keeps Slurm's."""
        return self._to_inventory.get(slurm_name, slurm_name)


def _by_instance(node: Node | SlurmNode) -> set[str]:
    return {node.instance_id} if node.instance_id else set()


def _by_address(node: Node | SlurmNode) -> set[str]:
    return {node.ip if isinstance(node, Node) else node.address} - {""}


def _by_host_name(node: Node | SlurmNode) -> set[str]:
    """Host names without domain; EC2 calls a host ip-10-1-2-3 after its address ("Instance hostname types", EC2 User Guide)."""
    if isinstance(node, SlurmNode):
        return {node.hostname.split(".")[0]} - {""}
    return {node.host.split(".")[0], f"ip-{node.ip.replace('.', '-')}" if node.ip else ""} - {""}


def _by_name(node: Node | SlurmNode) -> set[str]:
    return {node.name}


def _node(row: dict[str, Any]) -> SlurmNode:
    return SlurmNode(
        name=row["name"],
        hostname=row.get("hostname") or "",
        address=row.get("address") or "",
        instance_id=row.get("instance_id") or "",
        states=frozenset(words(row.get("state")) | words(row.get("state_flags"))),
        reason=row.get("reason") or "",
    )


def _is_endless(duration: str) -> bool:
    """Whether a duration is what Slurm makes of "infinite": a year, 365-00:00:00. Source: scontrol(1), Duration."""
    days, dash, _ = duration.partition("-")
    return duration.lower() in ("infinite", "unlimited") or (bool(dash) and days.isdigit() and int(days) >= ENDLESS_DAYS)


def words(value: Any) -> set[str]:
    """Read a state: one word before 23.11, a list since; "IDLE+DRAIN" in the text form."""
    parts = value if isinstance(value, list) else [value or ""]
    return {word.strip("*~#!%$@^-").upper() for part in parts for word in str(part).split("+") if word}


def number(value: Any) -> int | None:
    """Read an optional number: plain in 22.05, `{set, infinite, number}` since 23.02."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def _last(*texts: str) -> str:
    return next((text.strip()[-300:] for text in texts if text.strip()), "it said nothing")
