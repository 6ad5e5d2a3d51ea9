"""POST /v1/answers: what a person says to an incident, from the chat, pager or form where they read the question.

    {"node": "node-2", "answer": "approve", "by": "ann@example.org", "reason": "go on", "step": "REBOOT_NODE", "id": "..."}

`incident` (its workflow id) may stand in place of `node`. `by` is required: the answer is remembered with who gave it and when.
The same `id` counts once, however often it is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.errors import BadInput, TransientError, UnknownNode
from activities.inventory import Inventory
from activities.names import incident_id
from workers.intake.proof import Refused as Turned
from workers.saying import WORDS, NotOpen, Refused
from workflows.messages import Word

Say = Callable[[str, str, Word, str, str], Awaitable[str]]
"""Says a word to an incident: its id, the word, who says it, what to say when none is open, an id of the message."""

logger = logging.getLogger(__name__)


class GivenAnswer(BaseModel):
    """One answer as it comes in. Lengths are bounded because it enters the history of the incident."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    answer: str
    by: str = Field(min_length=1, max_length=200)
    node: str = Field("", max_length=200)
    incident: str = Field("", max_length=1000)
    reason: str = Field("", max_length=1000)
    step: str = Field("", max_length=100)
    id: str = Field("", max_length=200)


class Answers:
    """Hands answers to the incidents of one cluster."""

    def __init__(self, cluster: str, inventory: Inventory, say: Say, timeout_s: float) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._say = say
        self._timeout_s = timeout_s

    async def give(self, body: bytes) -> dict[str, Any]:
        """Say it, and return what the incident answers. Raises Turned with the HTTP status, so that the sender knows what to do.

        400: cannot be read. 404: no such node, or no incident of it is open. 409: the incident refuses it. 503: send again.
        """
        given = read_answer(body)
        word = given.answer.replace("_", "-").replace(" ", "-")
        if word not in WORDS:
            raise Turned(400, f"{given.answer!r} is no answer; what can be said: {_words()}")
        name, workflow_id = await self._incident(given)
        said = Word(by=given.by, reason=given.reason, step=given.step)
        try:
            heard = await asyncio.wait_for(
                self._say(workflow_id, word, said, f"no incident of {name} is open", given.id), self._timeout_s
            )
        except NotOpen as error:
            raise Turned(404, str(error)) from error
        except Refused as error:
            raise Turned(409, f"{error}; what can be said: {_words()}") from error
        except (TransientError, TimeoutError) as error:
            raise Turned(503, f"not heard, send again: {str(error) or 'no answer in time'}") from error
        logger.info("%s: %s by %s: %s", name, word, given.by, heard)
        return {"node": name, "incident": workflow_id, "answer": word, "by": given.by, "said": heard}

    async def _incident(self, given: GivenAnswer) -> tuple[str, str]:
        """The node's name and the id of its incident; an incident of another cluster is not known here."""
        alias = given.node
        prefix = incident_id(self._cluster, "")
        if not alias:
            if not given.incident.startswith(prefix):
                raise Turned(404, f"{given.incident!r} is no incident of cluster {self._cluster}; those begin with {prefix}")
            alias = given.incident.removeprefix(prefix)
        try:
            node = await asyncio.to_thread(self._inventory.resolve, self._cluster, alias)
        except (UnknownNode, BadInput) as error:
            raise Turned(404, str(error)) from error
        except TransientError as error:
            raise Turned(503, f"not heard, send again: {error}") from error
        found = incident_id(self._cluster, node.instance_id)
        if given.incident and given.incident != found:
            raise Turned(400, f"{given.incident} is not the incident of {node.name}, which is {found}; name one of the two")
        return node.name, found


def read_answer(body: bytes) -> GivenAnswer:
    """Read the body. Raises Turned 400 naming each mistake."""
    try:
        given = GivenAnswer.model_validate(json.loads(body))
    except ValidationError as error:
        mistakes = [f"{'.'.join(str(part) for part in one['loc']) or 'body'}: {one['msg']}" for one in error.errors()]
        raise Turned(400, "; ".join(mistakes)) from error
    except (ValueError, RecursionError) as error:
        raise Turned(400, f"the body is not JSON: {error}") from error
    if not given.node and not given.incident:
        raise Turned(400, 'name the node ("node") or its incident ("incident")')
    return given


def _words() -> str:
    return ", ".join(f"{word} ({meaning})" for word, meaning in WORDS.items())
