"""Profiles of a model: ONNX Runtime's for the whole model, and our executor's."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from opatlas.conf import conf
from opatlas.graph.linked import BodyPath, NodeAt, NodePath
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.profile import KERNEL_TIME, NEVER, ModelProfile, NodeProfile, from_onnx_runtime
from opatlas.graph.walk import CONTROL
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.executor import Executor
from opatlas.plan.limits import run_within
from opatlas.plan.making import whole
from opatlas.plan.node_names import own_place, places_of
from opatlas.plan.predicting import alone_us, border_costs
from opatlas.plan.regions import DEFAULT, open_session
from opatlas.streams.timeline import Timeline, TimelineBox, bounded

Feed = Mapping[str, np.ndarray]
PROFILED_RUNS = 5


def profile_model(graph: ModelGraph, feeds: Iterable[Feed], threads: int, version: str = "") -> ModelProfile:
    """A profile of one run over each of these inputs by ONNX Runtime, with its fusions. ``version``: a name
    for these weights. The first run's times include what only a first run does."""
    events = _events(graph, feeds, threads, math.inf)
    by = f"onnxruntime {ort.__version__}"
    return from_onnx_runtime(events, places_of(graph, own_place), model=graph.key, version=version, by=by)


def profile_in_place(graph: ModelGraph, feed: Feed, threads: int) -> ModelProfile:
    """Each node's time in ONNX Runtime, warm and in place, and this machine's costs of cutting the model
    there. The service weighs kernels against it in its plans."""
    events = _after_first_run(_events(graph, [feed] * (PROFILED_RUNS + 1), threads))
    by = f"onnxruntime {ort.__version__}"
    seen = from_onnx_runtime(events, places_of(graph, own_place), model=graph.key, by=by)
    session = open_session(graph.model, quiet_options(threads))
    read = {one.name for one in session.get_inputs()}
    given = {name: value for name, value in feed.items() if name in read}
    whole_us = alone_us(lambda: session.run(None, given))
    return seen.in_place(whole_us, border_costs(threads))


def _after_first_run(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The profile without its first run."""
    runs = sorted((one["ts"], one["dur"]) for one in events if one.get("name") == "model_run")
    end = sum(runs[0]) if runs else 0
    return [one for one in events if one.get("ts", 0) >= end]


def profile_of_session(graph: ModelGraph, events: Any, version: str = "") -> ModelProfile:
    """A profile from a job's own ``onnxruntime.InferenceSession`` with ``enable_profiling``. ``events``: the
    JSON of its file. Nodes are found by their names in the model: a node without a name, or with another
    node's name, is unknown."""
    once = Counter(_all_names(graph.model.graph))
    places = {name: at for name, at in _named(graph) if once[name] == 1}
    return from_onnx_runtime(events, places_of(graph, places.get), model=graph.key, version=version)


def profile_by_executor(executor: Executor, feeds: Iterable[Feed], version: str = "") -> ModelProfile:
    """A profile of one run over each of these inputs by a plan. A step of one node has its time. Nodes of
    regions, and nodes in bodies that the plan runs, are only counted."""
    before, nodes, runs = executor.body_runs, dict[NodePath, NodeProfile](), 0
    graph = executor.graph
    for feed in feeds:
        runs += 1
        for timed in executor.profile(feed):
            own = graph.own_nodes(timed.step.nodes)
            us = timed.us if len(own) == 1 else None
            for number in own:
                has_bodies = graph.unlaid.nodes[number].proto.op_type in CONTROL
                seen = NodeProfile(1, us, None if has_bodies else us)
                nodes[number,] = nodes.get((number,), NEVER) + seen
    for at, count in executor.body_runs.items():
        if count > before.get(at, 0) and (path := graph.own_path(at)) is not None:
            nodes[path] = NodeProfile(count - before.get(at, 0), None, None)
    return ModelProfile(graph.key, version, "executor", runs, nodes)


def node_times(
    graph: ModelGraph, feed: Feed, threads: int, limit_s: float | None = None
) -> dict[NodeAt, float]:
    """Microseconds of each node in ONNX Runtime, in place: the median of a few profiled runs. A node that was
    fused into another takes none. A node in a body has the median of its calls; the body's node includes it.
    A run beyond ``limit_s`` (default: a first run's limit) is ended with
    :class:`opatlas.plan.limits.TookTooLong`."""
    found: dict[NodeAt, list[float]] = {}
    where = places_of(graph, own_place)
    for event in _events(graph, [feed] * PROFILED_RUNS, threads, limit_s):
        name = event.get("name", "")
        if name.endswith(KERNEL_TIME) and (at := where(name.removesuffix(KERNEL_TIME))) is not None:
            found.setdefault(at if len(at) > 1 else at[0], []).append(float(event["dur"]))
    return {at: float(np.median(times)) for at, times in found.items()}


def timeline_of_whole(graph: ModelGraph, feed: Feed, threads: int) -> Timeline:
    """The last of a few runs by ONNX Runtime, from its profile. What it fused is one box; a branch or loop
    has all of its body's time."""
    events = _events(graph, [feed] * PROFILED_RUNS, threads, math.inf)
    run = max((one for one in events if one.get("name") == "model_run"), key=lambda one: one["ts"])
    where = places_of(graph, own_place)
    boxes = []
    for event in events:
        name, start_us = event.get("name", ""), event.get("ts", 0)
        if not name.endswith(KERNEL_TIME) or not run["ts"] <= start_us <= run["ts"] + run["dur"]:
            continue
        at = where(name.removesuffix(KERNEL_TIME))
        if at is None or len(at) == 1:  # none: what ONNX Runtime put in, such as a reorder
            said = event.get("args", {}).get("op_name", name)
            said += f" (node {at[0]})" if at else ""
            boxes.append(TimelineBox(0, said, float(start_us), float(event["dur"]), by=DEFAULT))
    return bounded(["ONNX Runtime"], boxes)


def _events(
    graph: ModelGraph, feeds: Iterable[Feed], threads: int, limit_s: float | None = None
) -> list[dict[str, Any]]:
    """The events of ONNX Runtime's profiler for the whole model, with nodes named by where they are."""
    limit_s = conf().first_run_s if limit_s is None else limit_s
    plan = whole(graph, "", "")
    nodes, outputs = plan.steps[0].nodes, plan.steps[0].outputs
    weights = graph.evaluate(graph.constants_of(nodes))
    model, inputs = graph.part(nodes, outputs, weights)
    read = {graph.names[number] for number in inputs}
    for number, node in zip(nodes, model.graph.node, strict=True):
        node.name = f"node{number}."
        _name_inside(node, graph.nodes[number], str(number))
    options = quiet_options(threads)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = open_session(model, options)
        for feed in feeds:
            given = {name: value for name, value in feed.items() if name in read}
            run_within(session, None, given, limit_s)
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return events


def _name_inside(proto: onnx.NodeProto, node: GraphNode, where: str) -> None:
    """Name the nodes of a node's bodies by where they are, such as ``3/0/5``."""
    order = ("then_branch", "else_branch", "body")
    graphs = sorted(
        (one for one in proto.attribute if one.name in order), key=lambda one: order.index(one.name)
    )
    for which, (attribute, body) in enumerate(zip(graphs, node.bodies, strict=False)):
        makers = {one.proto.output[0]: at for at, one in enumerate(body.graph.nodes)}
        for inner in attribute.g.node:
            at = makers.get(next(iter(inner.output), ""))
            inner.name = f"node{where}/{which}/{at}." if at is not None else ""
            if at is not None:
                _name_inside(inner, body.graph.nodes[at], f"{where}/{which}/{at}")


def _named(graph: ModelGraph, body: BodyPath = ()) -> Iterator[tuple[str, NodePath]]:
    """Names in the model's file, and the places of their nodes in its normal form."""
    for number, node in enumerate(graph.nodes):
        at = (*body, number)
        if node.proto.name:
            yield node.proto.name, at
        for which, inner in enumerate(node.bodies):
            yield from _named(inner.graph, (*at, which))


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.name
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _all_names(inner)
