"""Run Command in memory: says of each command what it was told to say, and answers as a node of its own would."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from activities.run_command import AgentSeen, Invocation
from checks.named_runs import packed

Shown = Invocation | Exception | None


def succeeded(answer: Mapping[str, object]) -> Invocation:
    """A command that ended well, with this answer of the node."""
    return Invocation(state="Success", response_code=0, stdout=packed(answer) + "\n")


class FakeRunCommand:
    """`RunCommandClient`. `shown` is what the looks at a command show, one after the other, the last one for ever."""

    def __init__(self, *shown: Shown, agent: AgentSeen | None = None, whole: Callable[[], str] | None = None) -> None:
        self._shown = list(shown)
        self._agent, self._whole = agent, whole
        self.failures: list[Exception] = []
        self.sent: list[dict[str, str]] = []
        self.cancelled: list[str] = []

    def send(self, document: str, instance_id: str, parameters: Mapping[str, str], deliver_s: int) -> str:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append({"document": document, **parameters})
        return f"command-{len(self.sent)}"

    def look(self, command_id: str, instance_id: str) -> Invocation | None:
        shown = self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]
        if isinstance(shown, Exception):
            raise shown
        return shown

    def cancel(self, command_id: str, instance_id: str) -> None:
        self.cancelled.append(command_id)

    def agent(self, instance_id: str) -> AgentSeen | None:
        return self._agent

    def whole_output(self, invocation: Invocation) -> str:
        assert self._whole is not None
        return self._whole()
