"""The evidence bundle of an incident: all that a node says, and is said of it, before anything is done to it.

One bundle for each incident and token, however often it is asked for. It is kept also when the node dies half-way, and says then
what is missing; an attempt that dies itself leaves what it has read to the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.clock import Clock, SystemClock, beat
from activities.errors import CapabilityMissing, HotspareError, as_application_error
from activities.evidence_asides import EvidenceSources, begin_asides, begin_record
from activities.evidence_bundle import Bundle, pack, unpack
from activities.evidence_gathering import Aside, NodeReader, nvml_is_unsafe
from activities.evidence_parts import PROBE, SUPPORT_CASE, Part, PartState, head_parts, node_parts
from activities.evidence_redaction import Redactor, serial_key
from activities.evidence_spool import Spool
from activities.evidence_store import EvidenceStore, StoredBundle, bundle_name
from activities.evidence_taking import Taking, about, case_of
from activities.node_messages import CollectEvidence, EvidenceBundle
from activities.node_words import LINE_LIMIT
from activities.probing import ProbeCrashed, ProbeWish
from activities.settings import EvidenceSettings, StoreSettings
from activities.settings_access import AccessSettings

logger = logging.getLogger(__name__)

CLOCK_MARGIN = timedelta(minutes=10)
"""How much earlier than the last incident's end the journal is read. Hotspare default: clocks differ, lines are few."""

ASIDE_S = 5.0
"""Seconds that what is asked beside the node may take longer than the node. Hotspare default: it had the node's time already."""

KEEP_S = 90.0
"""Seconds of an attempt that are left when the node is asked no more. Hotspare default: a last connection without an answer, the
head node, packing 20 MB, and a bucket that is silent twice."""

TOLD = 3
"""Missing parts that are told in the incident's story with their reason; the rest is in the manifest. Hotspare default."""


class EvidenceCollector:
    """Gathers, cleans, packs and keeps bundles. `refuge` takes those that `store` does not take."""

    def __init__(
        self,
        sources: EvidenceSources,
        store: EvidenceStore,
        refuge: EvidenceStore,
        access: AccessSettings,
        evidence: EvidenceSettings,
        places: StoreSettings,
        clock: Clock | None = None,
    ) -> None:
        self._from = sources
        self._store = store
        self._refuge = refuge
        self._access = access
        self._evidence = evidence
        self._places = places
        self._clock = clock or SystemClock()

    def collect(self, request: CollectEvidence) -> EvidenceBundle:
        """Return the bundle of this incident and token; gather it where there is none yet."""
        name = bundle_name(request.incident, request.token)
        if (kept := self._find(name)) is not None:
            return described(kept, unpack(kept.content))
        taking, about = self._gather(request, name)
        limit = self._places.evidence_limit_bytes
        content = pack(about, list(taking.parts.values()), limit, int(taking.began.timestamp()))
        beat("evidence: keeping the bundle")
        kept, remark = self._keep(name, content)
        taking.spool.clear()
        return described(kept, unpack(kept.content), remark)

    def _find(self, name: str) -> StoredBundle | None:
        for store in (self._store, self._refuge):
            try:
                if (kept := store.find(name)) is not None:
                    return kept
            except HotspareError as error:  # whether it is there is told by the write, which replaces nothing
                logger.info("evidence: %s cannot be looked for: %s", name, error)
        return None

    def _keep(self, name: str, content: bytes) -> tuple[StoredBundle, str]:
        try:
            return self._store.keep(name, content), ""
        except HotspareError as error:
            logger.warning("evidence: %s is kept in the folder instead: %s", name, error)
            return self._refuge.keep(name, content), f"kept in the folder instead: {error}"

    def _gather(self, request: CollectEvidence, name: str) -> tuple[Taking, dict[str, object]]:
        key, remark = serial_key(self._evidence.serial_key)
        spool = Spool(self._places.evidence_dir / ".spool" / name)
        taking = Taking(request, Redactor(key), spool, datetime.now(UTC))
        earlier = spool.parts()
        asides = begin_asides(self._from, taking)
        record = begin_record(self._from, taking).part(ASIDE_S)
        taking.redactor.know(taking.found.record.gpu_serials if taking.found.record is not None else ())
        taking.take(record)
        reader = self._read_node(taking, earlier, asides)
        until = time.monotonic() + ASIDE_S
        for aside in asides:
            if aside.name not in taking.parts:
                taking.take(earlier.get(aside.name) or self._shortened(aside.part(max(0.0, until - time.monotonic()))))
        self._read_head(taking, earlier)
        taking.take(Part(SUPPORT_CASE, PartState.TAKEN, "hotspare", "facts of the incident", text=case_of(taking)))
        taking.mark_boards()
        return taking, about(taking, reader, remark)

    def _read_node(self, taking: Taking, earlier: dict[str, Part], asides: Sequence[Aside]) -> NodeReader:
        """Ask the node: what a death of it destroys comes first, what may hang comes last."""
        request = taking.request
        deadline_s = min(request.deadline_s, _left_s())
        reader = NodeReader(
            self._from.access_to(request.node),
            self._access.sudo,
            self._clock,
            self._clock.now() + deadline_s,
            deadline_s,
            self._evidence.part_limit,
            "NVML is not touched after XID 79, 119 or 120 in this boot" if request.no_nvml else "",
        )
        first = node_parts(self._evidence, self._access.python, self._since(taking), {})[:2]
        logs = [taking.take(earlier.get(part.name) or reader.read(part)) for part in first]
        reader.no_nvml = reader.no_nvml or nvml_is_unsafe(logs)
        taking.take(earlier.get(PROBE) or self._probe(reader, taking))
        job = next(aside for aside in asides if aside.name == "job.json")
        taking.take(earlier.get(job.name) or job.part(ASIDE_S))
        words = {"node": request.node.name, "job": taking.found.job.job if taking.found.job else ""}
        for part in node_parts(self._evidence, self._access.python, self._since(taking), words)[2:]:
            taking.take(earlier.get(part.name) or reader.read(part))
        return reader

    def _shortened(self, part: Part) -> Part:
        limit = self._evidence.part_limit
        return part.shortened(limit, f"the last {limit} characters")

    def _read_head(self, taking: Taking, earlier: dict[str, Part]) -> None:
        """Ask the head node for the logs of this node's ranks; it may still have them when the node has nothing more to say."""
        job = taking.found.job.job if taking.found.job else ""
        (part,) = head_parts(self._evidence, self._access.python, {"node": taking.request.node.name, "job": job})
        if part.skipped or self._from.head is None:
            taking.take(Part(part.name, PartState.SKIPPED, "head", why=part.skipped or "no head node is configured"))
            return
        if part.name in earlier:
            taking.take(earlier[part.name])
            return
        limit_s = self._evidence.part_deadline_s
        try:
            access = self._from.head()
        except HotspareError as error:
            taking.take(Part(part.name, PartState.MISSING, "head", why=str(error)))
            return
        until = self._clock.now() + limit_s
        taking.take(NodeReader(access, False, self._clock, until, limit_s, self._evidence.part_limit, source="head").read(part))

    def _probe(self, reader: NodeReader, taking: Taking) -> Part:
        """The deep probe's document."""

        def look(limit_s: float) -> tuple[str, str]:
            wish = ProbeWish(depth="deep", no_nvml=bool(reader.no_nvml), deadline_s=limit_s)
            try:
                taking.found.answer = self._from.probe.run(reader.access, taking.request.node, wish)
            except ProbeCrashed as error:
                raise CapabilityMissing(str(error)) from error
            return taking.found.answer.raw, ""

        part = reader.attempt(PROBE, look, self._access.probe_deadline_s, nvml=True)
        return replace(part, what="run_checks.py probe --depth deep")

    def _since(self, taking: Taking) -> datetime:
        """From when on the journal is read: the end of the last incident, else some days back."""
        record = taking.found.record
        ended = record.last_incident_closed_at if record is not None else None
        return (ended - CLOCK_MARGIN) if ended is not None else taking.began - timedelta(days=self._evidence.journal_days)


class EvidenceActivities:
    """Saves evidence for incidents."""

    def __init__(self, collector: EvidenceCollector) -> None:
        self._collector = collector

    @activity.defn
    def collect_evidence(self, request: CollectEvidence) -> EvidenceBundle:
        """Keep the evidence bundle of an incident; the same token gives the same bundle. A silent node has missing parts."""
        with as_application_error():
            return self._collector.collect(request)


def described(kept: StoredBundle, bundle: Bundle, remark: str = "") -> EvidenceBundle:
    """What history and the incident's story keep of a bundle."""
    lost = [part for part in bundle.parts if part["state"] == PartState.MISSING]
    told = [f"{part['name']} ({part['why']})" for part in lost[:TOLD]]
    told += [f"{len(lost) - TOLD} more"] if len(lost) > TOLD else []
    applying = [part for part in bundle.parts if part["state"] != PartState.SKIPPED]
    words = [f"{len(bundle.items)} of {len(applying)} parts", *([f"missing: {', '.join(told)}"] if told else [])]
    words += [remark] if remark else []
    return EvidenceBundle(
        uri=kept.uri,
        sha256=kept.sha256,
        size_bytes=len(kept.content),
        items=bundle.items,
        missing=[line[:LINE_LIMIT] for line in [*bundle.missing, *([remark] if remark else [])]],
        summary="; ".join(words)[: 2 * LINE_LIMIT],
    )


def _left_s() -> float:
    """Seconds that this attempt has for the node, so that it also has the time to keep what it read."""
    if not activity.in_activity() or (limit := activity.info().start_to_close_timeout) is None:
        return float("inf")
    spent = datetime.now(UTC) - activity.info().started_time
    return max(0.0, (limit - spent).total_seconds() - KEEP_S)
