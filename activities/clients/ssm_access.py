"""`NodeAccess` by Run Command of AWS Systems Manager: a fixed document takes the name of a command and a run id.

Commands are found in the table of `checks/node_commands.py`, and the node builds them from its own copy. The same run id is the
same run there, so what may have been sent is sent again. The kernel log is not followed: the agent on the node reports it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities.clock import Clock, SystemClock, beat
from activities.errors import (
    AccessRefused,
    CapabilityMissing,
    CommandFailed,
    DeadlinePassed,
    HotspareError,
    NodeUnreachable,
    ProviderBusy,
)
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.node_access import AccessTo, CommandResult, DetachedRun, NodeAccess
from activities.run_command import ENDED, NEVER_CAME, SHORTEST_DELIVERY_S, STOPPED, WAITING, Invocation, RunCommandClient
from activities.settings_access import AccessSettings
from checks.named_runs import GRACE_S, folder_name, packed_options, unpacked
from checks.node_commands import NODE_COMMANDS, named

SENDS = 3
"""Tries of one command where whether it was sent is not known, or the service is busy. Hotspare default."""

ANY_CHECK = "load-test"
"""Name that goes with a look at a run, or its end: the run id says which run is meant."""

INSTALLED = "/opt/hotspare"
"""Where the document expects Hotspare on the node (infra/ssm)."""


class SsmAccess:
    """Access to one node."""

    def __init__(self, client: RunCommandClient, node: Node, settings: AccessSettings, clock: Clock | None = None) -> None:
        self._client, self._node = client, node
        self._settings, self._ssm = settings, settings.ssm
        self._clock = clock or SystemClock()

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        check, words = self._named(command)
        return self._run(check, words, deadline_s, output_limit or self._settings.output_limit)

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        check, words = self._named(command)
        options = {"words": words, "deadline_s": deadline_s}
        self._ask("start", check, run_id, options, self._settings.command_deadline_s)

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        options = {"limit": output_limit or self._settings.output_limit}
        answer = self._ask("poll", ANY_CHECK, run_id, options, self._settings.command_deadline_s)
        return DetachedRun(run_id=run_id, **answer)

    def kill(self, run_id: str) -> None:
        self._ask("kill", ANY_CHECK, run_id, {}, self._settings.command_deadline_s)

    def put(self, file: Path, digest: str) -> str:
        self._run("boot-id", [], self._settings.command_deadline_s, 100)  # one that is down says so first
        raise CapabilityMissing(f"{self._node.name} is reached by Run Command, which carries no files: {INSTALLED} has them")

    def follow_kernel_log(self) -> Iterator[str]:
        self._run("boot-id", [], self._settings.command_deadline_s, 100)  # one that is down says so first
        raise CapabilityMissing(f"{self._node.name} is reached by Run Command: its kernel log is followed by the agent on it")

    def boot_id(self, deadline_s: float) -> str:
        answer = self._run("boot-id", [], deadline_s, 100)
        if answer.exit_status or not answer.stdout.strip():
            raise CommandFailed(f"{self._node.name}: no boot id: {answer.stderr.strip()[-300:]}")
        return answer.stdout.strip()

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "start"})

    def close(self) -> None:
        """Nothing is open."""

    def _named(self, command: list[str]) -> tuple[str, list[str]]:
        words = command[2:] if command[:2] == ["sudo", "-n"] else command
        found = named(words)
        if found is None:
            told = " ".join(Path(word).name for word in words[:2])
            raise CapabilityMissing(
                f"{self._node.name} is reached by Run Command, which runs commands of a table by name: {told} with these "
                "words is not among them (docs/access.md)"
            )
        return found

    def _run(self, check: str, words: list[str], deadline_s: float, limit: int) -> CommandResult:
        options = {"words": words, "deadline_s": deadline_s, "limit": limit}
        answer = self._ask("run", check, f"once/{uuid.uuid4()}", options, deadline_s)
        if answer["timed_out"]:
            raise DeadlinePassed(f"{self._node.name}: no end of {check} within {deadline_s:.0f} s")
        return CommandResult(exit_status=answer["exit_status"], stdout=answer["stdout"], stderr=answer["stderr"])

    def _ask(self, action: str, check: str, run_id: str, options: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """Ask the node one question and return its answer."""
        looks = action == "run" and not NODE_COMMANDS[check].changes
        parameters = {"Action": action, "Check": check, "RunId": _short(run_id), "Options": packed_options(options)}
        document = self._ssm.look_document if looks else self._ssm.document
        command_id = self._send(document, parameters)
        ended = False
        try:
            invocation = self._await(command_id, check, deadline_s)
            ended = True
        finally:
            if not ended:  # also where our own activity is cancelled
                self._give_up(command_id, action, run_id)
        return self._read(invocation, check)

    def _send(self, document: str, parameters: dict[str, str]) -> str:
        for last in (*[False] * (SENDS - 1), True):
            beat()
            try:
                return self._client.send(document, self._node.instance_id, parameters, SHORTEST_DELIVERY_S)
            except NodeUnreachable as error:
                raise NodeUnreachable(f"{self._node.name}: {self._heard_of()} ({error})") from error
            except ProviderBusy:
                if last:
                    raise
                self._clock.wait(self._ssm.poll_s)
        raise AssertionError("unreachable")

    def _await(self, command_id: str, check: str, deadline_s: float) -> Invocation:
        until = self._clock.now() + deadline_s + GRACE_S + self._ssm.answer_s
        with_node_by = self._clock.now() + self._ssm.answer_s
        while True:
            seen = self._client.look(command_id, self._node.instance_id)
            state = seen.state if seen is not None else "Pending"
            if seen is not None and state in ENDED:
                return seen
            if state in NEVER_CAME or (state in WAITING and self._clock.now() >= with_node_by):
                raise NodeUnreachable(f"{self._node.name}: the command {check} did not reach it ({state}): {self._heard_of()}")
            if state in STOPPED:
                raise CommandFailed(f"{self._node.name}: the command {check} was ended from outside: {state}")
            if self._clock.now() >= until:
                raise DeadlinePassed(f"{self._node.name}: no end of {check} within {deadline_s:.0f} s; Run Command says {state}")
            self._clock.wait(self._ssm.poll_s)
            beat()

    def _give_up(self, command_id: str, action: str, run_id: str) -> None:
        """End a command that nobody waits for any more, here and on the node; it has its own deadline should neither arrive."""
        with contextlib.suppress(HotspareError):
            self._client.cancel(command_id, self._node.instance_id)
        if action == "run":
            parameters = {"Action": "kill", "Check": ANY_CHECK, "RunId": _short(run_id), "Options": packed_options({})}
            with contextlib.suppress(HotspareError):
                self._client.send(self._ssm.document, self._node.instance_id, parameters, SHORTEST_DELIVERY_S)

    def _read(self, invocation: Invocation, check: str) -> dict[str, Any]:
        name = self._node.name
        try:
            answer = unpacked(invocation.stdout)
            if answer is None:
                answer = unpacked(self._whole(invocation, check))
        except ValueError as error:
            said = (invocation.stderr or invocation.stdout).strip()[-300:]
            raise AccessRefused(
                f"{name}: install this release of Hotspare in {INSTALLED} on the node: Run Command ended with "
                f"{invocation.response_code} and no answer of ours ({error}): {said}"
            ) from error
        if answer is None:
            raise CommandFailed(f"{name}: the output of {check} is cut, in the bucket too")
        if "refused" in answer:
            raise CapabilityMissing(f"{name}: {answer['refused']}; are node and worker of one release?")
        return answer

    def _whole(self, invocation: Invocation, check: str) -> str:
        try:
            return self._client.whole_output(invocation)
        except CapabilityMissing as error:
            raise CapabilityMissing(f"{self._node.name}: {check}: {error}") from error

    def _heard_of(self) -> str:
        """Say what the service knows of the node's agent: one that never registered tells nothing of the node."""
        try:
            agent = self._client.agent(self._node.instance_id)
        except HotspareError as error:
            return f"what the service knows of its agent cannot be read: {error}"
        if agent is None:
            return (
                "no SSM Agent of it is registered, or it is stopped; one that never was needs the agent, a way to the service, "
                "and AmazonSSMManagedInstanceCore in its instance profile"
            )
        ago = f"{(datetime.now(UTC) - agent.last_ping).total_seconds():.0f} s ago" if agent.last_ping else "at a time not told"
        return f"its SSM Agent is {agent.ping}, last heard of {ago}"


class SsmAccessTo:
    """`AccessTo` by Run Command. Head nodes run commands of the settings' own, which no table has: `heads` reaches them."""

    def __init__(self, client: RunCommandClient, settings: AccessSettings, heads: Callable[[], AccessTo]) -> None:
        self._client, self._settings, self._heads = client, settings, heads

    def __call__(self, node: Node) -> NodeAccess:
        if node.role == ROLE_HEAD:
            return self._heads()(node)
        return SsmAccess(self._client, node, self._settings)


def _short(run_id: str) -> str:
    """A run id as the document takes it: of few letters, and different for different ids."""
    return run_id if re.fullmatch(r"[A-Za-z0-9._-]{1,80}", run_id) else folder_name(run_id)
