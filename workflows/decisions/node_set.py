"""The node set of a job under recovery: who is out, who comes in for whom, and who still owes an answer."""

from __future__ import annotations

from activities.incidents import NodeGivenUp, NodeIn, NodeOut


class NodeSet:
    """Books messages of incidents. An answer that belongs to nothing out changes nothing."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._out: dict[str, NodeOut] = {}
        self._answers: dict[str, NodeIn] = {}
        self._owed: dict[str, str] = {}
        self._news: list[NodeOut] = []
        self._place: dict[str, int] = {}
        self.given_up: list[str] = []

    def begin(self, names: list[str]) -> None:
        """Learn the job's node names as the scheduler has them."""
        self._names = self._names or list(names)

    def out(self, message: NodeOut) -> None:
        """Book a node as out. Saying so twice is no second time."""
        if self._out.get(message.instance_id) == message:
            return
        self._out[message.instance_id] = message
        self._news.append(message)
        if not message.restart_only:
            self._leave_own_place(message)
            self._answers.pop(message.instance_id, None)
            self._owed[message.instance_id] = message.node_name

    def _leave_own_place(self, message: NodeOut) -> None:
        """Learn at which place it falls out. A node that stood in for another leaves its own old place to who took it."""
        now = self.nodes()
        if message.node_name not in now:
            return
        place, old = now.index(message.node_name), self._place.get(message.instance_id)
        if old is not None and old != place and message.instance_id in self._answers:
            self._names[old] = now[old]
            self._answers = {key: answer for key, answer in self._answers.items() if self._place_of(key) != old}
        self._place[message.instance_id] = place

    def come_in(self, message: NodeIn) -> None:
        """Book the node that comes in."""
        if message.replaces in self._owed:
            self._owed.pop(message.replaces)
            self._answers.pop(message.replaces, None)
            self._take_from_others(message)
            self._answers[message.replaces] = message

    def _take_from_others(self, message: NodeIn) -> None:
        """A spare that was taken back and leased anew stands in for one node only: what it stood in for before is owed again."""
        now = self.nodes()
        for replaced, answer in list(self._answers.items()):
            place = self._place_of(replaced)
            if answer.instance_id == message.instance_id and place is not None and now[place] == message.node_name:
                del self._answers[replaced]
                self._owed[replaced] = self._out[replaced].node_name if replaced in self._out else replaced

    def give_up(self, message: NodeGivenUp) -> None:
        """Book that nothing comes in."""
        name = self._owed.pop(message.instance_id, None)
        if name is not None:
            self.given_up.append(f"{name}: {message.reason}")

    def await_answer(self, instance_id: str, name: str) -> None:
        """Book that a node failed the burn-in: whoever supplied it, or its own incident, owes another one."""
        for replaced, answer in list(self._answers.items()):
            if answer.instance_id == instance_id:
                del self._answers[replaced]
                self._owed[replaced] = self._out[replaced].node_name if replaced in self._out else name
                return
        self._owed[instance_id] = name

    def keep(self, instance_id: str, name: str) -> None:
        """Make a node that was supplied a member like any other: whoever supplied it is gone and answers no more."""
        for replaced, answer in list(self._answers.items()):
            if answer.instance_id == instance_id:
                place = self._place_of(replaced)
                if place is not None:
                    self._names[place] = name
                del self._answers[replaced]

    def settle(self) -> list[str]:
        """End one recovery: what came in stays. Returns the incidents to tell; those that fell out since are of the next one."""
        fresh = {message.instance_id for message in self._news}
        over = {key: message for key, message in self._out.items() if key not in fresh}
        self._names = self.nodes()
        self._answers.clear()
        self._owed = {key: name for key, name in self._owed.items() if key in fresh}
        self._out = {key: message for key, message in self._out.items() if key in fresh}
        self._place = {key: place for key, place in self._place.items() if key in fresh}
        self.given_up.clear()
        return list(dict.fromkeys(message.incident for message in over.values()))

    def supplied_by(self, instance_id: str) -> NodeIn | None:
        """Return the answer that brought this node in, if an incident supplied it."""
        return next((answer for answer in self._answers.values() if answer.instance_id == instance_id), None)

    def unanswered(self) -> list[str]:
        """Return the names of the nodes in whose place nothing has come yet."""
        return sorted(self._owed.values())

    def owed(self) -> dict[str, str]:
        """Return the nodes in whose place nothing has come yet, by instance id."""
        return dict(self._owed)

    def nodes(self) -> list[str]:
        """Return the node names to run on, in the job's own order. A stand-in may have a stand-in of its own."""
        names = list(self._names)
        for replaced, answer in self._answers.items():  # in the order in which they came in
            place = self._place_of(replaced)
            if place is not None:
                names[place] = answer.node_name
        return names

    def _place_of(self, instance_id: str) -> int | None:
        name = self._name_of(instance_id)
        at_first = self._names.index(name) if name in self._names else None
        return self._place.get(instance_id, at_first)

    def newcomers(self) -> list[str]:
        """Return the names of the nodes that came in for others, where they are proven."""
        came = [answer for answer in self._answers.values() if answer.proof and answer.instance_id != answer.replaces]
        return [answer.node_name for answer in came if answer.node_name not in self._names]

    def replaced(self) -> list[str]:
        """Return the names of the nodes that the job is to run on no more."""
        back = {answer.node_name for answer in self._answers.values()}
        return [out.node_name for out in self._out.values() if not out.restart_only and out.node_name not in back]

    def proofs(self) -> list[str]:
        """Return what proves each node that came in, in words."""
        return [f"{answer.node_name}: {answer.proof}" for answer in self._answers.values() if answer.proof]

    def nodes_out(self) -> list[str]:
        """Return the names of the nodes that fell out, in the order in which they did."""
        return [message.node_name for message in self._out.values()]

    def _name_of(self, instance_id: str) -> str:
        return self._out[instance_id].node_name if instance_id in self._out else instance_id

    def reason(self) -> str:
        """Return why the job is held, for its scheduler's records."""
        return "; ".join(f"{message.node_name}: {message.reason}" for message in self._out.values())[:300] or "recovery"

    def news(self) -> bool:
        """Return whether a node fell out since `read_news`."""
        return bool(self._news)

    def read_news(self) -> None:
        """Take note of what has fallen out so far."""
        self._news.clear()
