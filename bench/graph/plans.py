"""One model by the catalogue's own parts, in each of four ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.graph.exploring import made_plan
from bench.graph.one_by_one import one_by_one
from bench.models.frameworks import Run
from opatlas.errors import first_line
from opatlas.given_model import random_inputs
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.graph.simplify import NotSimplified
from opatlas.identity import default_setting
from opatlas.plan.executor import Executor
from opatlas.plan.making import NodeChoice, whole
from opatlas.plan.plan import ByKernel, ModelPlan, PlanStep
from opatlas.plan.predicting import alone_us, costs, predicted
from opatlas.plan.profiling import node_times
from opatlas.session import Session
from opatlas.simplifying import simplified_graph

if TYPE_CHECKING:
    from opatlas.client import Client

OURS = ("unplanned", "simplified", "kernels", "plan")
SEED = 1


@dataclass(frozen=True)
class BenchModel:
    """A model and its simpler form (itself where it has none), with what both are run on."""

    graph: ModelGraph
    simpler: ModelGraph
    feed: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, data: bytes, threads: int) -> BenchModel:
        graph = ModelGraph(data)
        feed = random_inputs(graph, SEED)
        try:
            return cls(graph, simplified_graph(graph, None, feed, threads), feed)
        except NotSimplified as reason:
            print(f"  planned as it is: {reason}", flush=True)
            return cls(graph, graph, feed)


class ModelPlans:
    """The model by the catalogue's parts in each of four ways, loaded."""

    def __init__(self, one: BenchModel, client: Client) -> None:
        self._one, self._client = one, client
        self._setting = client.setting or default_setting(client.target)
        self._open: list[Executor | Session] = []
        self._plans: dict[str, ModelPlan] = {}
        self._executors: dict[str, Executor] = {}
        self._failed: dict[str, str] = {}

    def run_of(self, name: str) -> Run:
        """Raises :class:`OpatlasError` where the model cannot run so."""
        graph = self._one.graph if name == "unplanned" else self._one.simpler
        if name in ("unplanned", "simplified"):
            session = self._session(graph, None)
            plan = one_by_one(graph, self._kernels(session), session.place)
        else:
            plan = self._by_passes(graph, ("kernels", "fusion")[: OURS.index(name) - 1])
            session = self._session(graph, plan)
        self._plans[name] = plan
        executor = self._executor(session, plan, name)
        return lambda: executor.run(self._one.feed)

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
            self._failed.setdefault(name, f"{step.by.said}: {first_line(error)}")

        executor = Executor(session.graph, plan, session.load, threads=session.threads, failed=failed)
        self._open.append(executor)
        self._executors[name] = executor
        return executor

    def broken(self) -> dict[str, str]:
        """Which of the four did not run as planned, so far, and why: its time is another's."""
        fallen = {name: one.fallen_back for name, one in self._executors.items() if one.fallen_back}
        return self._failed | fallen

    def _kernels(self, session: Session) -> dict[NodeAt, NodeChoice]:
        """Of nodes whose operator a kernel does in less time than ONNX Runtime, or the default where nothing
        is known of it."""
        made = self._made(session.graph, ("kernels",))
        nodes = {step.nodes[0] for step in made.steps if isinstance(step.by, ByKernel)}
        return {at: one for at, one in session.look_up().items() if at in nodes}

    def _by_passes(self, graph: ModelGraph, passes: tuple[str, ...]) -> ModelPlan:
        """With what ONNX Runtime's profile says of the rest, as sessions predict."""
        plan, feed = self._made(graph, passes), self._one.feed
        threads = self._setting.threads
        profiled = {at: us for at, us in node_times(graph, feed, threads).items() if isinstance(at, int)}
        default = Executor(graph, whole(graph, plan.target, plan.setting), _never, threads=threads)
        whole_us = alone_us(lambda: default.run(feed))
        arrays = (*feed.values(), *default.run(feed))
        copied = sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))
        default.close()
        return predicted(_without_times_of_regions(plan), costs(profiled, whole_us, copied, threads))

    def _made(self, graph: ModelGraph, passes: tuple[str, ...]) -> ModelPlan:
        return made_plan(graph, self._client.target, self._setting, passes).plan

    def figures(self) -> dict[str, Any]:
        plan = self._plans.get("plan")
        steps = [step for step in plan.steps if isinstance(step.by, ByKernel)] if plan else []
        predicted_us = plan.predicted_us if plan else None
        return {
            "nodes": len(self._one.simpler.nodes),
            "nodes_before": len(self._one.graph.nodes),
            "by_kernels": sum(len(step.nodes) for step in steps),
            "fused_operators": sum(len(step.nodes) > 1 for step in steps),
            "reorders": 0,
            "predicted_ms": None if predicted_us is None else predicted_us / 1e3,
        }

    def close(self) -> None:
        for one in reversed(self._open):
            one.close()


def _without_times_of_regions(plan: ModelPlan) -> ModelPlan:
    steps = (one if isinstance(one.by, ByKernel) else replace(one, predicted_us=None) for one in plan.steps)
    return replace(plan, steps=tuple(steps))


def _never(by: ByKernel) -> Any:
    raise AssertionError(f"the whole model in a framework has no kernel {by.said}")
