"""Models as problems of layouts: a real one whose best layouts change with what its runs show, and what is
left out, withdrawn, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from opatlas.graph.linked import NodePath, unique_name
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import InvalidProfile, ModelProfile
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.plan.profiling import profile_model
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.tuning.graph.layout.making import Reorders, body, built, of, option, paths, same, value
from tuning.graph.layout.costing import costs_of
from tuning.graph.layout.counts import control_flow
from tuning.graph.layout.model import ModelLayouts, Tables, layouts_of
from tuning.graph.layout.problem import InvalidLayouts, LayoutOption
from tuning.graph.layout.reorders import ReorderCosts, reorder_operator
from tuning.graph.layout.solving import LayoutSolution, solve

CHANNELS, SIZE = 16, 12
SHAPE = [1, CHANNELS, SIZE, SIZE]
RANDOM = np.random.default_rng(0)
ROW = "row-major"


KERNELS = {"stem": 3, "bright_conv": 5, "dark_conv": 7, "step_conv": 9, "head": 11}
"""Of another size each: so each convolution is another operator."""


def weight(size: int) -> np.ndarray:
    return (RANDOM.standard_normal((CHANNELS, CHANNELS, size, size)) / 4 / size).astype(np.float32)


def conv(name: str, source: str, target: str) -> Any:
    return of("Conv", name, f"{source} w_{name}", target, pads=[KERNELS[name] // 2] * 4)


DATA = built(
    [
        conv("stem", "x", "s"),
        of("ReduceMean", "mean", "x", "mean_", keepdims=0),
        of("Greater", "is_bright", "mean_ zero", "bright"),
        of(
            "If", "choice", "bright", "c",
            then_branch=body([conv("bright_conv", "s", "t"), of("Relu", "bright_relu", "t", "u")], [], ["u"]),
            else_branch=body([conv("dark_conv", "s", "e")], [], ["e"]),
        ),
        of(
            "Loop", "refine", "trips - c", "r",
            body=body(
                [
                    conv("step_conv", "v", "k"), of("Add", "step_add", "k s", "n"),
                    of("Identity", "go_on", "go", "on"),
                ],
                [value("turn", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", None)],
                ["on", "n"],
            ),
        ),
        conv("head", "r", "y"),
    ],
    [value("x", SHAPE), value("trips", [], TensorProto.INT64)],
    ["y"],
    zero=np.float32(0),
    **{f"w_{name}": weight(size) for name, size in KERNELS.items()},
)  # fmt: skip
GRAPH = ModelGraph(DATA)
AT = paths(GRAPH)


def feed(bright: bool, trips: int) -> dict[str, np.ndarray]:
    return {"x": np.full(SHAPE, 1 if bright else -1, np.float32), "trips": np.array(trips)}


def both(row_major: float, nhwc: float, inputs: int = 1) -> list[LayoutOption]:
    return [option(row_major, f"{ROW} " * inputs, ROW), option(nhwc, "NHWC " * inputs, "NHWC")]


TABLES: Tables = {
    AT["stem"]: both(50, 40),
    AT["bright_conv"]: both(20, 60),
    AT["bright_relu"]: both(5, 5),
    AT["dark_conv"]: both(60, 20),
    AT["step_conv"]: both(30, 24),
    AT["step_add"]: both(4, 4, inputs=2),
    AT["head"]: both(40, 60),
}
REORDERS = Reorders({(ROW, "NHWC"): 25, ("NHWC", ROW): 25})


def layouts(solution: LayoutSolution, found: ModelLayouts) -> dict[str, str]:
    """The layout that each operator makes its first output in."""
    nodes = {node.name: node for node in found.problem.nodes}
    return {
        name: nodes[unique_name(at)].options[solution.chosen[unique_name(at)]].outputs[0]
        for name, at in AT.items()
        if at in TABLES
    }


# ---- a real model -----------------------------------------------------------------------------------


def test_what_a_real_run_shows_changes_the_best_layouts() -> None:
    bright = profile_model(GRAPH, [feed(True, 1)] * 3, 1)
    dark = profile_model(GRAPH, [feed(False, 12)] * 3, 1)
    assert dark.of(AT["dark_conv"]).count == bright.of(AT["bright_conv"]).count == 3
    assert dark.of(AT["step_conv"]).count == 36 and bright.of(AT["step_conv"]).count == 3
    best = {}
    for name, seen in (("bright", bright), ("dark", dark)):
        found = layouts_of(GRAPH, TABLES, REORDERS, seen)
        best[name] = (found, solve(found.problem))
    told = {name: layouts(solution, found) for name, (found, solution) in best.items()}
    assert set(told["bright"].values()) == {ROW}
    assert told["dark"]["step_conv"] == told["dark"]["dark_conv"] == told["dark"]["stem"] == "NHWC"
    assert told["dark"]["head"] == ROW
    for one, other in (("bright", "dark"), ("dark", "bright")):  # each is best by its own profile alone
        found, solution = best[one]
        there = costs_of(found.problem, best[other][1].chosen)
        assert solution.gap == 0 and solution.costs.total_us < there.total_us


def test_profiles_of_several_runs_are_weighed_by_their_runs() -> None:
    merged = profile_model(GRAPH, [feed(True, 1)] * 3, 1).merged(profile_model(GRAPH, [feed(False, 13)], 1))
    counts = layouts_of(GRAPH, TABLES, REORDERS, merged).problem.counts
    choice, refine = AT["choice"], AT["refine"]
    assert counts == {(): 1.0, (*choice, 0): 0.75, (*choice, 1): 0.25, (*refine, 0): 4.0}


def test_the_model_is_what_onnx_runtime_runs() -> None:
    """Its branch and its loop are there: nothing of them was decided before a run."""
    assert [one.op_type for one in control_flow(TypedNodes.of_graph(GRAPH))] == ["If", "Loop"]
    session = ort.InferenceSession(DATA)
    one, other = (session.run(None, feed(*what))[0] for what in ((True, 1), (False, 12)))
    assert one.shape == other.shape == tuple(SHAPE) and not np.allclose(one, other)


@settings(max_examples=25, derandomize=True)
@given(st.integers(0, 10_000))
def test_any_model_is_a_problem(seed: int) -> None:
    """Branches, loops and scans within each other; nothing is known of their operators, so they stay as they
    are, and cost nothing that could be saved."""
    graph = ModelGraph(RandomBodies(seed).build())
    found = layouts_of(graph, {}, Reorders())
    assert len(found.without) == len(operators(graph))
    solution = solve(found.problem)
    assert solution.costs.total_us == 0 and solution.costs.reorders == ()


def operators(graph: ModelGraph) -> list[NodePath]:
    """Nodes that are no branch or loop that could be taken apart."""
    control = {one.at for one in control_flow(TypedNodes.of_graph(graph))}
    return [at for at in _everywhere(graph, ()) if at not in control]


def _everywhere(graph: ModelGraph, within: tuple[int, ...]) -> list[NodePath]:
    found = []
    for number, node in enumerate(graph.nodes):
        found.append((*within, number))
        for which, inner in enumerate(node.bodies):
            found += _everywhere(inner.graph, (*within, number, which))
    return found


# ---- what a profile must be of ----------------------------------------------------------------------


def test_a_profile_of_another_model_or_version_is_refused() -> None:
    seen = replace(profile_model(GRAPH, [feed(True, 1)], 1), version="of March")
    with pytest.raises(InvalidProfile, match="The profile is of model m1:x…, not of m1:"):
        layouts_of(GRAPH, TABLES, REORDERS, replace(seen, model="m1:x"))
    with pytest.raises(InvalidProfile, match="of version 'of March' of the model, not of 'of April'"):
        layouts_of(GRAPH, TABLES, REORDERS, seen, version="of April")
    assert layouts_of(GRAPH, TABLES, REORDERS, seen, version="of March").problem
    assert layouts_of(GRAPH, TABLES, REORDERS, seen).problem  # nobody said which


def test_what_a_profile_has_not_seen_runs_once() -> None:
    nothing = ModelProfile(GRAPH.key, "", "test", 1, {})
    assert layouts_of(GRAPH, TABLES, REORDERS, nothing) == layouts_of(GRAPH, TABLES, REORDERS)


# ---- what is left out -------------------------------------------------------------------------------


def with_stem(*options: LayoutOption) -> Mapping[NodePath, Any]:
    return {**TABLES, AT["stem"]: list(options)}


def test_a_block_that_does_not_divide_the_channels_is_left_out() -> None:
    eight, five = option(1, "NCHW8c", "NCHW8c"), option(1, "NCHW5c", "NCHW5c")
    found = layouts_of(GRAPH, with_stem(eight, five), REORDERS)
    [stem] = [node for node in found.problem.nodes if node.name == "0"]
    assert [one.inputs for one in stem.options] == [("NCHW8c",)]
    assert found.left_out == {
        AT["stem"]: ("NCHW5c splits 16 of [1, 16, 12, 12] by 5, which does not divide it",)
    }


def test_where_no_layout_is_left_an_operator_stays_row_major() -> None:
    found = layouts_of(GRAPH, with_stem(option(1, "NCHW5c", "NCHW5c")), REORDERS)
    assert AT["stem"] in found.without
    assert layouts(solve(found.problem), found)["stem"] == ROW


def test_costs_that_were_withdrawn_leave_an_operator_row_major() -> None:
    known = layouts_of(GRAPH, TABLES, REORDERS)
    withdrawn = layouts_of(GRAPH, with_stem(), REORDERS)
    assert set(withdrawn.without) - set(known.without) == {AT["stem"]}
    assert layouts(solve(withdrawn.problem), withdrawn)["stem"] == ROW


def test_reorders_that_were_withdrawn_leave_everything_in_the_layout_of_its_ends() -> None:
    found = layouts_of(GRAPH, TABLES, Reorders())
    solution = solve(found.problem)
    assert set(layouts(solution, found).values()) == {ROW} and solution.costs.reorders == ()
    with pytest.raises(InvalidLayouts, match="No choice of layouts fits together"):
        solve(layouts_of(GRAPH, TABLES, Reorders(), given={"x": "NHWC"}).problem)


def test_inputs_and_outputs_are_in_the_layouts_that_are_said() -> None:
    ends = layouts_of(GRAPH, TABLES, REORDERS, given={"x": "NHWC"}, wanted={"y": "NHWC"}).problem
    fixed = {node.name: node.options[0] for node in ends.nodes if len(node.options) == 1}
    assert fixed["input x"].outputs == ("NHWC",) and fixed["output y"].inputs == ("NHWC",)
    assert layouts_of(GRAPH, TABLES, REORDERS, given={"x": "NCHW"}) == layouts_of(GRAPH, TABLES, REORDERS)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"tables": {AT["stem"]: [option(1, "NHWC NHWC", "NHWC")]}}, "reads 1 values that are no constants"),
        ({"tables": {(99,): same(NHWC=1)}}, "no operator 99"),
        ({"tables": {AT["choice"]: same(NHWC=1)}}, "no operator 3"),
        ({"given": {"z": "NHWC"}}, "no input 'z'"),
        ({"wanted": {"x": "NHWC"}}, "no output 'x'"),
        ({"given": {"x": "NCHW5c"}}, "Input 'x' cannot be in it: NCHW5c splits 16"),
        ({"wanted": {"y": "NWC"}}, "Output 'y' cannot be in it: NWC is of 3 dimensions"),
    ],
)
def test_tables_and_ends_that_do_not_fit_the_model_are_refused(what: Any, said: str) -> None:
    with pytest.raises(InvalidLayouts, match=said):
        layouts_of(GRAPH, reorders=REORDERS, **{"tables": TABLES, **what})


# ---- what is looked up ------------------------------------------------------------------------------


def test_reorders_that_are_estimated_are_looked_up_and_then_measured() -> None:
    first = layouts_of(GRAPH, TABLES, ReorderCosts())
    operators = {one: reorder_operator(*one) for one in first.estimated}
    assert {(source, target) for _, source, target in operators} == {(ROW, "NHWC"), ("NHWC", ROW)}
    keys = {one: operator.key for one, operator in operators.items() if operator is not None}
    catalogue = dict.fromkeys(keys.values(), 25.0)
    assert len(catalogue) == len(first.estimated) == 2
    half = ReorderCosts({one: catalogue[key] for one, key in list(keys.items())[:1]})
    assert len(layouts_of(GRAPH, TABLES, half).estimated) == 1
    second = layouts_of(GRAPH, TABLES, ReorderCosts({one: catalogue[key] for one, key in keys.items()}))
    assert second == layouts_of(GRAPH, TABLES, REORDERS) and second.estimated == ()


def test_what_a_choice_owes_to_estimates_is_said() -> None:
    dark = profile_model(GRAPH, [feed(False, 40)], 1)
    costs = solve(layouts_of(GRAPH, TABLES, ReorderCosts(), dark).problem).costs
    reordered = sum(one.us for one in costs.reorders)
    assert costs.estimated_us == pytest.approx(reordered) and reordered > 0
    assert solve(layouts_of(GRAPH, TABLES, REORDERS, dark).problem).costs.estimated_us == 0
