"""How a person's word reaches an incident or Cluster: an update, which answers; said twice it counts once."""

from __future__ import annotations

import uuid
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import FinalError
from activities.message import Message
from workers.connection import RPC_TIMEOUT, TemporalAway
from workflows.messages import Word

WORDS = {
    "approve": "let the step that is asked about go ahead",
    "skip": "leave that step out",
    "escalate": "take the next rung of the ladder",
    "take-over": "the node is yours; its quarantine stays",
    "hand-back": "the node is examined again and the incident goes on",
    "cancel": "undo what is ours and safe to undo, and end",
}
"""What can be said to an incident, and what it means."""

TRIES = 3
"""Times that a word is said with the same id. Measured: one of 171 updates to a busy cluster failed or took over 30 s."""


class Refused(FinalError):
    """Hotspare heard it and does not do it; the message says why."""


class NotOpen(Refused):
    """There is no incident that could hear it."""


async def say(client: Client, workflow_id: str, word: str, said: Word, not_open: str, update_id: str = "") -> str:
    """Say one of WORDS to an incident and return its answer. Raises NotOpen, Refused, TemporalAway."""
    if word == "cancel":
        return await _cancel(client, workflow_id, said, not_open)
    answer = await update(client, workflow_id, word.replace("-", "_"), said, not_open, update_id)
    return str(answer or "heard")


async def _cancel(client: Client, workflow_id: str, said: Word, not_open: str) -> str:
    """The server keeps a cancel even while no worker runs; who said it and why go with it."""
    reason = f"{said.by}: {said.reason or 'no reason given'}"
    try:
        await client.get_workflow_handle(workflow_id).cancel(reason=reason, rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        raise explained(error, not_open) from error
    return "cancel: told; a step that is under way ends first"


async def update(client: Client, workflow_id: str, verb: str, message: Message, not_open: str, update_id: str = "") -> Any:
    """Say something to a workflow and return its answer. Said again with the same id when no answer comes, so it counts once."""
    handle = client.get_workflow_handle(workflow_id)
    update_id = update_id or str(uuid.uuid4())
    for left in reversed(range(TRIES)):
        try:
            return await handle.execute_update(verb, message, id=update_id, rpc_timeout=RPC_TIMEOUT)
        except WorkflowUpdateFailedError as error:
            raise Refused(f"{verb.replace('_', ' ')} was refused: {error.cause}") from error
        except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError) as error:
            if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
                raise explained(error, not_open) from error
            if not left:
                raise TemporalAway(
                    f"{workflow_id} gave no answer to {verb.replace('_', ' ')}; is a worker running? start one: hotspare worker"
                ) from error
    raise AssertionError("unreachable")


def explained(error: RPCError, not_open: str) -> Exception:
    """Turn an error of the server into ours: no such workflow, or no confirmation."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return NotOpen(f"{not_open}; see: hotspare status")
    return TemporalAway(f"Temporal did not take it: {error.message}; try again")
