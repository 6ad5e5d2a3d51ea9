"""Search attributes: which are there, and (for `hotspare init` alone) registering them and proving that they can be written.

A workflow that writes an attribute the server does not know is stuck for ever, and adding a name that exists with another type
answers no error: so `init` proves them with a probe workflow, and workers only look.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.names import SEARCH_ATTRIBUTES

PROOF_DEADLINE_S = 120.0
"""How long registered attributes may take to become usable. Source: a server caches the list for a minute."""

_TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
}


async def missing_attributes(client: Client) -> list[str]:
    """Return one line for each attribute that is missing or of another type; one line when the list cannot be had."""
    try:
        listed = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    except RPCError as error:
        return [f"the server does not list them ({error.message})"]
    return _compare({name: int(kind) for name, kind in listed.custom_attributes.items()})


def _compare(registered: dict[str, int]) -> list[str]:
    wrong = []
    for name, kind in SEARCH_ATTRIBUTES.items():
        if name not in registered:
            wrong.append(f"{name} ({kind}) is not registered")
        elif registered[name] != _TYPES[kind]:
            have = IndexedValueType.Name(registered[name]).removeprefix("INDEXED_VALUE_TYPE_").title()  # type: ignore[arg-type]
            wrong.append(f"{name} is registered as {have}, not as {kind}")
    return wrong


async def register_attributes(client: Client) -> list[str]:
    """Register what is not there; return what is still wrong, one line each."""
    listed = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    absent = {name: _TYPES[kind] for name, kind in SEARCH_ATTRIBUTES.items() if name not in listed.custom_attributes}
    if absent:
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=absent)
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status != RPCStatusCode.ALREADY_EXISTS:
                return [f"the server refused to register them ({error.message}); register by hand: {by_hand(list(absent))}"]
    return await missing_attributes(client)


def by_hand(missing: list[str]) -> str:
    """The command that registers attributes where `init` may not."""
    pairs = " ".join(f"--name {name} --type {SEARCH_ATTRIBUTES[name]}" for name in missing)
    return f"temporal operator search-attribute create {pairs}"


@workflow.defn(name="HotspareProbe", sandboxed=False)
class ProbeWorkflow:
    """Writes nothing, waits for nothing: its start carries every attribute."""

    @workflow.run
    async def run(self) -> str:
        """End at once."""
        return "ok"


async def prove_attributes(client: Client, deadline_s: float = PROOF_DEADLINE_S) -> float:
    """Start a workflow that carries every attribute and read them back; returns the seconds it took. Raises TimeoutError."""
    queue = f"hotspare-probe-{time.time_ns()}"
    began = time.monotonic()
    async with Worker(client, task_queue=queue, workflows=[ProbeWorkflow]):
        while True:
            try:
                await _probe_once(client, queue)
                return time.monotonic() - began
            except RPCError as error:
                # Just registered names are unknown to the front end until its cache is renewed.
                if error.status != RPCStatusCode.INVALID_ARGUMENT or time.monotonic() - began > deadline_s:
                    raise TimeoutError(f"search attributes are registered but cannot be written yet: {error.message}") from error
                await asyncio.sleep(1)


async def _probe_once(client: Client, queue: str) -> None:
    handle = await client.start_workflow(
        ProbeWorkflow.run,
        id=queue,
        task_queue=queue,
        search_attributes=TypedSearchAttributes(_probe_values()),
        execution_timeout=timedelta(seconds=30),
        static_summary="proves that search attributes can be written",
    )
    await handle.result()
    description = await handle.describe()
    written = {pair.key.name for pair in description.typed_search_attributes.search_attributes}
    lost = sorted(set(SEARCH_ATTRIBUTES) - written)
    if lost:
        raise TimeoutError(f"search attributes were accepted but not kept: {', '.join(lost)}")


def _probe_values() -> list[SearchAttributePair[Any]]:
    pairs: list[SearchAttributePair[Any]] = []
    for name, kind in SEARCH_ATTRIBUTES.items():
        if kind == "Keyword":
            pairs.append(SearchAttributePair(SearchAttributeKey.for_keyword(name), "probe"))
        elif kind == "KeywordList":
            pairs.append(SearchAttributePair(SearchAttributeKey.for_keyword_list(name), ["probe"]))
        else:
            pairs.append(SearchAttributePair(SearchAttributeKey.for_bool(name), False))
    return pairs
