"""The AWS endpoint of the lab: moto behind a layer that counts, holds, fails and delays calls and tells the nodes what happened.

Where moto is simpler than EC2, the layer imitates EC2: client tokens of RunInstances, instance states on the way from one to
another, refusal of calls in the wrong state, instances not visible at once (`visible_after_s`), the console output of the
node, status checks that follow from the node (EC2 API Reference; EC2 User Guide, "Instance lifecycle", "Ensuring idempotency" and
"Status checks"; EC2 Developer Guide, "Eventual consistency"). Capacity that lacks and answers that lag: `infra.lab.capacity`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from infra.lab.auto_scaling import TERMINATE_MEMBER, AutoScaling
from infra.lab.capacity import LabClock, Shortage, StaleAnswers
from infra.lab.dynamodb import SERVICE, OneAtATime
from infra.lab.ec2_calls import Answer, AwsCall, StatusRow, console_output, error, instance_ids_in, instance_statuses, read_call
from infra.lab.holds import Hold, Holds
from infra.lab.moto_instances import forget_everything, set_state, state_of
from infra.lab.reservations import Reservations
from infra.lab.run_command import OPERATIONS, RunCommand
from infra.lab.run_command import SERVICE as SYSTEMS_MANAGER

_NEEDS = {
    "RebootInstances": ("running", "pending"),
    "StopInstances": ("running", "pending", "stopping", "stopped"),
    "StartInstances": ("stopped", "pending", "running"),
}
"""States in which EC2 takes a call; in any other it answers IncorrectInstanceState."""
_MIDWAY = {
    "StopInstances": "stopping",
    "StartInstances": "pending",
    "TerminateInstances": "shutting-down",
    "RunInstances": "pending",
    TERMINATE_MEMBER: "shutting-down",
}
_AS_IF = {TERMINATE_MEMBER: "TerminateInstances"}
"""Calls that do to an instance what another call does."""

_SERVER_ERRORS = {
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
    "InternalError": 500,
    "InsufficientInstanceCapacity": 500,
}
"""HTTP status of the error codes that are EC2's own fault; others are 400. Source: EC2 API Reference, "Server error codes"."""


class InstanceEvents(Protocol):
    """Who is told what the calls do to instances. Called on the lab's event loop, after the call was carried out."""

    def on_call(self, operation: str, instance_id: str) -> None: ...

    def console_of(self, instance_id: str) -> str:
        """Return the instance's console output. Called from a server thread."""
        ...

    def answers(self) -> dict[str, bool]:
        """Return by instance id whether its node carries out commands over SSH. Called from a server thread."""
        ...


@dataclass
class _Failure:
    operation: str
    code: str
    instance_id: str | None
    left: int


@dataclass
class _Launches:
    """Answers of RunInstances by client token, so that a repeated call launches nothing."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_token: dict[str, tuple[dict[str, str], Answer]] = field(default_factory=dict)


class _QuietHandler(MotoRequestHandler):
    """Logs requests for debugging only."""

    def log(self, type: str, message: str, *args: Any) -> None:
        logging.getLogger("hotspare.lab.endpoint").debug(message, *args)


class Ec2Endpoint:
    """Serves AWS calls on loopback. `calls` are the mutating calls that were carried out, in order."""

    def __init__(self, events: InstanceEvents, *, lag_s: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._app = DomainDispatcherApplication(create_backend_app)
        self._tables = OneAtATime(self._app)
        self._holds: Holds[AwsCall] = Holds(self._loop)
        self._failures: list[_Failure] = []
        self._launches = _Launches()
        self._lock = threading.Lock()
        self.auto_scaling = AutoScaling(self)
        self.run_command: RunCommand | None = None
        self.clock = LabClock()
        self.reservations = Reservations(self.clock)
        self.shortage = Shortage(self.clock)
        self.stale = StaleAnswers(self.clock)
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self.lag_s = lag_s
        self.visible_after_s = 0.0
        self._launched_at: dict[str, float] = {}
        self.calls: list[AwsCall] = []

    @property
    def url(self) -> str:
        """Address for AWS_ENDPOINT_URL."""
        assert self._server is not None, "the endpoint has not been started"
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Forget everything that moto remembers in this process, and serve."""
        forget_everything()
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_QuietHandler)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.auto_scaling.start(self.url)

    def stop(self) -> None:
        """Fail what is held and stop serving."""
        self._holds.drop_all()
        self.auto_scaling.stop()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def count(self, operation: str, instance_id: str | None = None) -> int:
        """How often a call was carried out, for one instance or in all. Failed, dropped and repeated launches do not count."""
        with self._lock:
            return sum(
                call.operation == operation and (instance_id is None or instance_id in call.instance_ids) for call in self.calls
            )

    def hold(self, operation: str, instance_id: str | None = None) -> Hold:
        """Hold the next such call: it has arrived, is not yet carried out, and gets no answer until `release`."""
        return self._holds.add(operation, _fits(operation, instance_id))

    def fail_next(self, operation: str, code: str, times: int = 1, instance_id: str | None = None) -> None:
        """Answer the next calls of a name with an error code instead of carrying them out."""
        with self._lock:
            self._failures.append(_Failure(operation, code, instance_id, times))

    def answers(self) -> dict[str, bool]:
        """As `InstanceEvents.answers`, for health checks."""
        return self._events.answers()

    def launched(self, instance_id: str) -> None:
        """Tell that a group has launched an instance."""
        self._loop.call_soon_threadsafe(self._events.on_call, "RunInstances", instance_id)

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        call = read_call(environ)
        if call.service == SERVICE:
            return self._tables(environ, start_response)
        if self.run_command is not None and call.service == SYSTEMS_MANAGER and call.operation in OPERATIONS:
            told = self.run_command.answer(call.operation, environ)
            start_response(f"{told.status} {'OK' if told.status < 400 else 'Error'}", list(told.headers))
            return [told.body]
        answer = self._answer(call, environ)
        start_response(f"{answer.status} {'OK' if answer.status < 400 else 'Error'}", list(answer.headers))
        return [answer.body]

    def _answer(self, call: AwsCall, environ: dict[str, Any]) -> Answer:
        if self.lag_s:
            time.sleep(self.lag_s)
        if failure := self._take_failure(call):
            status = _SERVER_ERRORS.get(failure, 400)
            return error(status, failure, f"{call.operation} fails here because the lab was told so")
        hold = self._holds.take(call)
        if hold is not None and not hold.stop_thread_here():
            return error(503, "Unavailable", "the lab dropped a held call")
        if call.parameters.get("DryRun") == "true":
            return error(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        if call.operation == "GetConsoleOutput" and call.instance_ids:
            return console_output(call.instance_ids[0], self._events.console_of(call.instance_ids[0]))
        if call.operation == "DescribeInstanceStatus":
            return self._statuses(call)
        if (shown := self.stale.answer(call)) is not None:
            return shown
        if call.operation == "DescribeInstances" and (unseen := self._not_visible_yet(call)):
            return error(400, "InvalidInstanceID.NotFound", f"The instance ID '{unseen}' does not exist")
        if call.operation == "DescribeCapacityReservations":
            return self.reservations.describe(call)
        if call.operation == "RunInstances" and call.parameters.get("ClientToken"):
            return self._launch_once(call, environ)
        refused = self._refusal(call) or self.auto_scaling.refusal(call) or self._no_place(call)
        answer = refused or self._carry_out(call, environ)
        answer = self.reservations.shown(answer) if call.operation == "DescribeInstances" else answer
        self.stale.keep(call, answer)
        return answer

    def _no_place(self, call: AwsCall) -> Answer | None:
        reserved = self.reservations.concerns(call)
        return self.reservations.refusal(call) or self.shortage.refusal(call, reserved=reserved)

    def _not_visible_yet(self, call: AwsCall) -> str:
        """Return an instance that was launched a moment ago and is not known everywhere yet, empty if there is none."""
        now = self.clock.now()
        new = (one for one in call.instance_ids if now - self._launched_at.get(one, -self.visible_after_s) < self.visible_after_s)
        return next(new, "")

    def _statuses(self, call: AwsCall) -> Answer:
        """Tell the status checks. EC2 notices a silent instance after minutes, the lab at once."""
        answers = self._events.answers()
        if unknown := [instance_id for instance_id in call.instance_ids if instance_id not in answers]:
            return error(400, "InvalidInstanceID.NotFound", f"The instance IDs '{', '.join(unknown)}' do not exist")
        rows = [_status_row(instance_id, answers[instance_id]) for instance_id in call.instance_ids or answers]
        every_state = call.parameters.get("IncludeAllInstances") == "true"
        return instance_statuses([row for row in rows if every_state or row.state == "running"])

    def _take_failure(self, call: AwsCall) -> str | None:
        with self._lock:
            for failure in self._failures:
                if failure.left and _fits(failure.operation, failure.instance_id)(call):
                    failure.left -= 1
                    return failure.code
        return None

    def _launch_once(self, call: AwsCall, environ: dict[str, Any]) -> Answer:
        wanted = {key: value for key, value in call.parameters.items() if key != "ClientToken"}
        with self._launches.lock:
            token = call.parameters["ClientToken"]
            known = self._launches.by_token.get(token)
            if known is not None and known[0] != wanted:
                return error(400, "IdempotentParameterMismatch", "the client token was used with other parameters")
            if known is not None:
                return known[1]
            answer = self._no_place(call) or self._carry_out(call, environ)
            if answer.status < 300:
                self._launches.by_token[token] = (wanted, answer)
            return answer

    def _refusal(self, call: AwsCall) -> Answer | None:
        allowed = _NEEDS.get(call.operation)
        for instance_id in call.instance_ids if allowed else ():
            state = state_of(instance_id)
            if allowed and state is not None and state not in allowed:
                verb = call.operation.removesuffix("Instances").lower()
                return error(
                    400,
                    "IncorrectInstanceState",
                    f"This instance '{instance_id}' is not in a state from which it can be {verb}ed: it is {state}",
                )
        return None

    def _carry_out(self, call: AwsCall, environ: dict[str, Any]) -> Answer:
        before = {instance_id: state_of(instance_id) for instance_id in call.instance_ids}
        answer = self._ask_moto(environ)
        if answer.status >= 300 or not call.mutates:
            return answer
        ids = call.instance_ids or (instance_ids_in(answer.body) if call.operation == "RunInstances" else ())
        self.reservations.carried_out(call, ids)
        self.auto_scaling.carried_out(call)
        self.stale.changed()
        if call.operation == "RunInstances":
            self._launched_at |= dict.fromkeys(ids, self.clock.now())
        with self._lock:
            self.calls.append(AwsCall(call.service, call.operation, call.parameters, ids, call.region))
        for instance_id in ids:
            self._tell(call.operation, instance_id, before.get(instance_id))
        return answer

    def _tell(self, operation: str, instance_id: str, before: str | None) -> None:
        """Show the state on the way, and let the node take its time to get there."""
        midway = _MIDWAY.get(operation)
        already = (operation, before) in {
            ("StopInstances", "stopped"),
            ("StartInstances", "running"),
            ("TerminateInstances", "terminated"),
        }
        if already and before is not None:
            set_state(instance_id, before)
            return
        if midway is not None:
            set_state(instance_id, midway)
        if midway is not None or operation == "RebootInstances":
            self._loop.call_soon_threadsafe(self._events.on_call, _AS_IF.get(operation, operation), instance_id)

    def _ask_moto(self, environ: dict[str, Any]) -> Answer:
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            head[:] = [status, headers]

        parts = self._app(environ, start_response)
        body = b"".join(parts)
        return Answer(int(head[0].split(" ", 1)[0]), body, tuple(head[1]))


def _status_row(instance_id: str, answers: bool) -> StatusRow:
    state = state_of(instance_id) or "terminated"
    if state == "running":
        return StatusRow(instance_id, state, "ok", "ok" if answers else "impaired")
    word = "initializing" if state == "pending" else "not-applicable"
    return StatusRow(instance_id, state, word, word)


def _fits(operation: str, instance_id: str | None) -> Callable[[AwsCall], bool]:
    return lambda call: call.operation == operation and (instance_id is None or instance_id in call.instance_ids)
