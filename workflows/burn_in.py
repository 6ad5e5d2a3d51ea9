"""BurnIn: the all-reduce over a group of nodes; when the group fails, it finds the bad node in few rounds side by side."""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.burn_in import BurnInActivities, GroupTest, GroupTestResult
    from activities.inventory import InventoryActivities, Node, ResolveNode
    from activities.learned_bandwidth import BandwidthActivities, CleanGroupRun, NoteCleanRuns
    from checks.judges import judgement as causes
    from checks.model import Verdict
    from workflows import options
    from workflows.decide import DecideActivities, bearings, decided
    from workflows.decisions.burn_in_advice import BAD_NODE, BAD_NODES, BAD_PATH
    from workflows.decisions.burn_in_plan import BurnInFacts, BurnInNext
    from workflows.decisions.burn_in_runs import RunDone
    from workflows.failures import cause_of
    from workflows.messages import BurnInReport, GroupRun, NodeVerdict, StartBurnIn
    from workflows.operator_view import Line, OperatorView
    from workflows.tokens import Tokens

BY_SPEED = (causes.HEALTHY, causes.LOW_BANDWIDTH, causes.MEASURED)
"""Causes whose evidence is a bandwidth against a floor. Of the others, the judge's own words say what was wrong."""

EVIDENCE_SHOWN = 200
"""Characters of a run's evidence that the plan and people see. Hotspare default: a line or two."""


@workflow.defn
class BurnIn:
    """Judge a group of nodes by running the all-reduce over them."""

    @workflow.init
    def __init__(self, start: StartBurnIn) -> None:
        self._tokens = Tokens()
        self._view = OperatorView()
        self._cluster = start.cluster
        self._nodes: dict[str, Node] = {}
        self._fresh: list[str] = []
        self._switches: dict[str, str] = {}
        self._runs: list[RunDone] = []
        self._seen: list[GroupRun] = []
        self._began = workflow.now()
        self._last_group: GroupTestResult | None = None
        self._clean: list[CleanGroupRun] = []

    @workflow.run
    async def run(self, start: StartBurnIn) -> BurnInReport:
        """Run round after round until the plan says who is to blame, or that nobody is."""
        learns = workflow.patched("clean runs are remembered")
        known = await bearings()
        self._cluster = start.cluster or known.cluster
        self._view.attributes_on = known.attributes
        await self._resolve(start.nodes, start.fresh)
        names = list(self._nodes)
        self._view.attributes(Cluster=self._cluster, Phase="burn-in", Node=",".join(names)[:200])
        while True:
            facts = BurnInFacts(
                nodes=names,
                runs=self._runs,
                fresh=self._fresh,
                switches=self._switches,
                elapsed_s=self._elapsed_s(),
                every_pair=start.every_pair,
                rails=self._rails(),
                by_hand=workflow.info().parent is None,
            )
            plan = await decided(DecideActivities.plan_burn_in, facts, "which groups next")
            if plan.done:
                if learns and plan.verdict is Verdict.OK:
                    await self._remember_clean_runs()
                return self._report(plan)
            await self._round(plan)

    async def _resolve(self, aliases: list[str], fresh: list[str]) -> None:
        nodes = await asyncio.gather(*(self._who(alias) for alias in aliases))
        self._nodes = {node.name: node for node in nodes}
        self._switches = {node.name: node.spine for node in nodes if node.spine}
        self._fresh = [node.name for node, alias in zip(nodes, aliases, strict=True) if alias in fresh]

    async def _who(self, alias: str) -> Node:
        return await workflow.execute_activity_method(
            InventoryActivities.resolve_node,
            ResolveNode(cluster=self._cluster, alias=alias),
            summary=f"who is {alias}",
            **options.LOOK_UP,
        )

    def _rails(self) -> int:
        """How many rails can be run one by one: as many as each node has GPUs, where all have the same."""
        gpus = {node.gpus for node in self._nodes.values()}
        return gpus.pop() if len(gpus) == 1 else 0

    def _elapsed_s(self) -> float:
        return (workflow.now() - self._began).total_seconds()

    async def _round(self, plan: BurnInNext) -> None:
        number = self._runs[-1].round + 1 if self._runs else 1
        self._view.tell(f"round {number}", f"{'; '.join(plan.because)}: {' | '.join('+'.join(group) for group in plan.groups)}")
        first = len(self._seen)
        rails: list[int | None] = [*plan.rails] or [None] * len(plan.groups)
        why = "; ".join(plan.because)
        self._seen += [
            GroupRun(round=number, nodes=group, rail=rail, why=why) for group, rail in zip(plan.groups, rails, strict=True)
        ]
        results = await asyncio.gather(*(self._run_in(first + at) for at in range(len(plan.groups))))
        for group, rail, result in zip(plan.groups, rails, results, strict=True):
            self._note(number, group, result, rail)

    async def _run_in(self, place: int) -> GroupTestResult:
        """Run the group at this place of what is seen, and let it be seen how it ended while others of the round still run."""
        run = self._seen[place]
        result = await self._run(run.nodes, run.rail)
        seen = result.model_dump(include={"verdict", "cause", "busbw_gbs", "floor_gbs"})
        self._seen[place] = run.model_copy(update={**seen, "evidence": result.evidence[:EVIDENCE_SHOWN]})
        return result

    async def _run(self, group: list[str], rail: int | None) -> GroupTestResult:
        test = GroupTest(
            cluster=self._cluster,
            run_id=self._tokens.next_name(),
            nodes=[self._nodes[name] for name in group],
            rail=rail,
        )
        try:
            result = await workflow.execute_activity_method(
                BurnInActivities.group_test,
                test,
                summary=f"all-reduce over {', '.join(group)}{'' if rail is None else f', rail {rail}'}",
                **options.GROUP_RUN,
            )
        except ActivityError as error:
            return GroupTestResult(verdict=Verdict.UNKNOWN, cause="could_not_run", evidence=cause_of(error))
        if result.kind and result.verdict is Verdict.OK and result.busbw_gbs is not None:
            self._clean.append(CleanGroupRun(key=result.kind, run_id=test.run_id, busbw_gbs=result.busbw_gbs))
        return result

    async def _remember_clean_runs(self) -> None:
        """Where every run passed and nobody is accused, the runs are a measure for later ones. Without it the verdict stands."""
        if not self._clean or any(run.verdict is not Verdict.OK for run in self._runs):
            return
        try:
            await workflow.execute_activity_method(
                BandwidthActivities.note_clean_runs,
                NoteCleanRuns(runs=self._clean, at=workflow.now()),
                summary=f"remember the bandwidth of {len(self._clean)} clean runs",
                **options.NOTE,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._view.tell("not remembered", cause_of(error))

    def _note(self, number: int, group: list[str], result: GroupTestResult, rail: int | None) -> None:
        floor = f", floor {_rate(result.floor_gbs)}" if result.floor_gbs else ""
        drift = f"; {result.drift}" if result.drift else ""
        by_speed = result.busbw_gbs is not None and result.cause in BY_SPEED
        over = "" if rail is None else f" over rail {rail}"
        measured = f"{_rate(result.busbw_gbs or 0.0)} GB/s{floor}{drift}" if by_speed else result.evidence
        self._view.tell(f"round {number}", f"{'+'.join(group)}{over}: {result.verdict.value} {result.cause}, {measured}")
        self._runs.append(
            RunDone(
                round=number,
                nodes=group,
                verdict=result.verdict,
                cause=result.cause,
                evidence=measured[:EVIDENCE_SHOWN],
                rail=rail,
                busbw_gbs=result.busbw_gbs if rail is not None else None,
            )
        )
        if len(group) == len(self._nodes) and rail is None:
            self._last_group = result

    def _report(self, plan: BurnInNext) -> BurnInReport:
        self._view.tell("verdict", f"{plan.verdict.value} {plan.cause}: {'; '.join(plan.because)}")
        if plan.next:
            self._view.tell("next", plan.next)
        self._view.attributes(Phase="closed", Outcome=plan.verdict.value)
        good = plan.verdict in (Verdict.OK, Verdict.WARN)
        verdicts = [self._verdict(name, plan, good) for name in self._nodes]
        return BurnInReport(
            verdict=plan.verdict,
            cause=plan.cause,
            because=plan.because,
            busbw_gbs=self._last_group.busbw_gbs if self._last_group else None,
            floor_gbs=self._last_group.floor_gbs if self._last_group else None,
            nodes=verdicts,
            bad_paths=plan.bad_paths,
            runs=len(self._runs),
            rounds=self._runs[-1].round if self._runs else 0,
            corrupt=plan.corrupt,
            next=plan.next,
        )

    def _verdict(self, name: str, plan: BurnInNext, good: bool) -> NodeVerdict:
        bad = plan.bad.get(name)
        isolated = plan.cause == BAD_NODES
        verdict = Verdict.CRITICAL if bad else Verdict.OK if good or isolated else Verdict.UNKNOWN
        blamed = BAD_PATH if any(name in path for path in plan.bad_paths) else BAD_NODE
        return NodeVerdict(
            instance_id=self._nodes[name].instance_id,
            node_name=name,
            verdict=verdict,
            cause=blamed if bad else plan.cause if not isolated else "healthy",
            evidence=bad or "",
        )

    @workflow.query(description="The rounds so far")
    def story(self) -> list[Line]:
        return self._view.lines

    @workflow.query(description="Every group run so far, those that run now among them")
    def runs(self) -> list[GroupRun]:
        return self._seen


def _rate(gbs: float) -> str:
    """GB/s in words: whole ones of a fast fabric, two digits of a slow link."""
    return f"{gbs:.0f}" if gbs >= 10 else f"{gbs:.2g}"
