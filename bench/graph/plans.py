"""One model by the catalogue's own parts, in each of five ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.graph.exploring import PASSES, made_plan
from bench.graph.one_by_one import one_by_one
from bench.models.frameworks import Run
from opatlas.errors import OpatlasError, first_line
from opatlas.graph.given_model import random_inputs
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.linked import BodyPath, NodeAt, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.simplify import NotSimplified
from opatlas.identity import default_setting
from opatlas.plan.executor import Executor
from opatlas.plan.making import NodeChoice, whole
from opatlas.plan.plan import ByBodies, ByKernel, ModelPlan, PlanStep
from opatlas.plan.predicting import costs, foretold_us, predicted
from opatlas.plan.profiling import node_times, profile_in_place
from opatlas.session import Session
from opatlas.session.forms import simplified_graph

if TYPE_CHECKING:
    from opatlas.client import Client

OURS = ("unplanned", "simplified", "kernels", "fused", "plan")
SEED = 1


@dataclass(frozen=True)
class BenchModel:
    """A model and its simpler form (itself where it has none), with what both are run on, and what runs of
    the latter by ONNX Runtime show."""

    graph: ModelGraph
    simpler: ModelGraph
    feed: Mapping[str, np.ndarray]
    profile: ModelProfile

    @classmethod
    def of(cls, data: bytes, threads: int) -> BenchModel:
        graph = ModelGraph(data)
        feed = random_inputs(graph, SEED)
        simpler = graph
        try:
            simpler = simplified_graph(graph, None, feed, threads)
        except NotSimplified as reason:
            print(f"  planned as it is: {reason}", flush=True)
        return cls(graph, simpler, feed, profile_in_place(simpler, feed, threads))


class ModelPlans:
    """The model by the catalogue's parts in each of these ways. ``refused``: in which of them it cannot run,
    or did not run as planned, so that its time is another's; and why."""

    def __init__(self, one: BenchModel, client: Client) -> None:
        self._one, self._client = one, client
        self._setting = client.setting or default_setting(client.target)
        self._open: list[Executor | Session] = []
        self._plans: dict[str, ModelPlan] = {}
        self.refused: dict[str, str] = {}

    @contextmanager
    def running(self, *names: str) -> Iterator[dict[str, Run]]:
        """Those of these ways that run, loaded until the end: each holds the model's weights again."""
        runs, executors = dict[str, Run](), dict[str, Executor]()
        try:
            for name in names:
                try:
                    executors[name] = self._opened(name)
                    runs[name] = partial(executors[name].run, self._one.feed)
                except OpatlasError as error:
                    self.refused[name] = first_line(error)
            yield runs
        finally:
            fallen = {name: one.fallen_back for name, one in executors.items() if one.fallen_back}
            self.refused = fallen | self.refused
            while self._open:
                self._open.pop().close()

    def _opened(self, name: str) -> Executor:
        """Raises :class:`OpatlasError` where the model cannot run so."""
        graph = self._one.graph if name == "unplanned" else self._one.simpler
        if name in ("unplanned", "simplified"):
            session = self._session(graph, None)
            plan = one_by_one(graph, self._kernels(session), session.place)
        else:
            plan = self._plans.get(name) or self._by_passes(graph, PASSES[: OURS.index(name) - 1])
            session = self._session(graph, plan)
        self._plans[name] = plan
        return self._executor(session, plan, name)

    def _session(self, graph: ModelGraph, plan: ModelPlan | None) -> Session:
        """Whose lookup knows all that the plan names."""
        given = plan or whole(graph, self._client.target.key, self._setting.key)
        data = graph.model.SerializeToString()
        session = Session(
            data, client=self._client, example=self._one.feed, try_s=0.0, frameworks=(), plan=given
        )
        self._open.append(session)
        return session

    def _executor(self, session: Session, plan: ModelPlan, name: str) -> Executor:
        def failed(step: PlanStep, error: Exception) -> None:
            self.refused.setdefault(name, f"{step.by.said}: {first_line(error)}")

        graph = _running(session.graph, plan)
        executor = Executor(graph, plan, session.kernels.load, threads=session.threads, failed=failed)
        self._open.append(executor)
        return executor

    def _kernels(self, session: Session) -> dict[NodeAt, NodeChoice]:
        """Of nodes whose operator a kernel does in less time than ONNX Runtime alone, or the default where
        nothing is known of it."""
        made = made_plan(session.graph, self._client.target, self._setting, ("kernels",)).plan
        nodes = {step.nodes[0] for step in made.steps if isinstance(step.by, ByKernel)}
        return {at: one for at, one in session.kernels.choices.items() if at in nodes}

    def _by_passes(self, graph: ModelGraph, passes: tuple[str, ...]) -> ModelPlan:
        """With what ONNX Runtime's profile says of the rest, as sessions predict."""
        made = made_plan(graph, self._client.target, self._setting, passes, self._one.profile)
        plan, feed = made.plan, self._one.feed
        threads, graph = self._setting.threads, _running(graph, plan)
        profiled = {at: us for at, us in node_times(graph, feed, threads).items() if isinstance(at, int)}
        default = Executor(graph, whole(graph, plan.target, plan.setting), _never, threads=threads)
        whole_us = foretold_us(lambda: default.run(feed))
        arrays = (*feed.values(), *default.run(feed))
        copied = sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))
        default.close()
        known = costs(graph, profiled, whole_us, copied, threads)
        return _with_times_of_bodies(predicted(_without_times_of_regions(plan), known), plan)

    def figures(self) -> dict[str, Any]:
        plan = self._plans.get("plan")
        running = _running(self._one.simpler, plan) if plan else self._one.simpler
        nodes = list(_nodes_by_kernel(plan, running)) if plan else []
        predicted_us = plan.predicted_us if plan else None
        return {
            "nodes": len(self._one.simpler.nodes),
            "nodes_before": len(self._one.graph.nodes),
            "by_kernels": sum(map(len, nodes)),
            "fused_operators": sum(len(one) > 1 for one in nodes),
            "channels_last": plan.nhwc.nodes if plan else 0,
            "reorders": running.form.reorder_count if isinstance(running, LaidOutGraph) else 0,
            "predicted_ms": None if predicted_us is None else predicted_us / 1e3,
        }


def _running(graph: ModelGraph, plan: ModelPlan) -> ModelGraph:
    """What the plan's numbers are of."""
    return LaidOutGraph(graph, plan.nhwc) if plan.nhwc else graph


def _nodes_by_kernel(plan: ModelPlan, running: ModelGraph, body: BodyPath = ()) -> Iterator[list[NodePath]]:
    """The model's own nodes of each kernel, those in bodies with them."""
    for step in plan.steps:
        if isinstance(step.by, ByKernel):
            paths = (running.own_path((*body, node)) for node in step.nodes)
            yield [one for one in paths if one is not None]
        elif isinstance(step.by, ByBodies):
            for which, inner in enumerate(step.by.plans):
                yield from _nodes_by_kernel(inner, running, (*body, step.nodes[0], which))


def _with_times_of_bodies(plan: ModelPlan, made: ModelPlan) -> ModelPlan:
    """Of branches and loops that run by themselves, as the service predicts them: by the profile of the very
    run that is timed, where a session could not know."""
    pairs = zip(plan.steps, made.steps, strict=True)
    steps = (
        replace(one, predicted_us=other.predicted_us) if isinstance(one.by, ByBodies) else one
        for one, other in pairs
    )
    return replace(plan, steps=tuple(steps))


def _without_times_of_regions(plan: ModelPlan) -> ModelPlan:
    steps = (one if isinstance(one.by, ByKernel) else replace(one, predicted_us=None) for one in plan.steps)
    return replace(plan, steps=tuple(steps))


def _never(by: ByKernel) -> Any:
    raise AssertionError(f"the whole model in a framework has no kernel {by.said}")
