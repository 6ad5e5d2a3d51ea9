"""The job adapter `command`: every look and every step is a configured command on the head node that prints one JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from activities.errors import BadInput, CapabilityMissing, CommandFailed, PreconditionFailed
from activities.inventory import Node
from activities.jobs.protocol import JobStatus
from activities.node_access import CommandResult, NodeAccess
from activities.settings_jobs import JobSettings

TEMPORARY_FAILURE = 75
"""Exit status "try again later". Source: EX_TEMPFAIL of sysexits.h."""

FINAL_FAILURES = range(64, 79)
"""Exit statuses that say that trying again is no use (wrong usage, not allowed...). Source: sysexits.h."""

_MARK = re.compile(r"\{(\w+)\}")


class CommandJobAdapter:
    """Drives a job by commands. `access_to_head` gives the access to the head node at each call, since its address may change."""

    def __init__(self, access_to_head: Callable[[], NodeAccess], settings: JobSettings) -> None:
        self._access_to_head = access_to_head
        self._settings = settings

    def find_on(self, node: Node) -> JobStatus | None:
        answer = self._answer("find", self._settings.find, {"node": node.name})
        return None if answer is None else _status("find", answer)

    def status(self, job: str) -> JobStatus:
        return _status("status", self._answer("status", self._settings.status, {"job": job}))

    def hold(self, job: str, reason: str) -> JobStatus:
        return _status("hold", self._answer("hold", self._settings.hold, {"job": job, "reason": reason}))

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        if odd := [name for name in nodes if "," in name or not name]:
            raise BadInput(f"job {job}: node names {odd} cannot stand in a comma-separated list")
        self._run("resume", self._settings.resume, {"job": job, "nodes": ",".join(nodes), "token": token})

    def settle(self, job: str, nodes: list[str]) -> None:
        """A started job leaves nothing to do."""

    def supply(self, job: str, node: Node) -> None:
        raise CapabilityMissing(f"job {job}: the resume command names the nodes, so none is supplied")

    def take_back(self, job: str, node: Node) -> None:
        """Nothing was supplied, so nothing is to be undone."""

    def leave(self, job: str, node: Node) -> None:
        raise CapabilityMissing(f"job {job}: only a hold stops its ranks")

    def _answer(self, what: str, command: list[str], words: Mapping[str, str]) -> Any:
        """Run a command and return the JSON value that it printed."""
        result = self._run(what, command, words)
        try:
            return json.loads(result.stdout)
        except ValueError as error:
            raise BadInput(
                f"job command {what!r} did not print one JSON value ({error}): {result.stdout.strip()[-300:]!r}"
            ) from error

    def _run(self, what: str, command: list[str], words: Mapping[str, str]) -> CommandResult:
        if not command:
            raise CapabilityMissing(f"no command is configured for {what!r}; set it under [job] in the settings file")
        filled = [fill(part, words) for part in command]
        result = self._access_to_head().run(filled, self._settings.command_deadline_s)
        if result.exit_status == 0:
            return result
        last = (result.stderr.strip() or result.stdout.strip())[-300:]
        message = f"job command {what!r} ended with status {result.exit_status}: {last}"
        if result.exit_status in FINAL_FAILURES and result.exit_status != TEMPORARY_FAILURE:
            raise PreconditionFailed(message)
        raise CommandFailed(message)


def fill(part: str, words: Mapping[str, str]) -> str:
    """Put the words into one argument. A word stays within it, and is not looked into again: a reason may contain "{token}"."""
    return _MARK.sub(lambda mark: words.get(mark.group(1), mark.group(0)), part)


def _status(what: str, answer: Any) -> JobStatus:
    try:
        return JobStatus.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole answer"
        raise BadInput(
            f"job command {what!r}: {place}: {first['msg']}; see activities/jobs/README.md for what it must print"
        ) from error
