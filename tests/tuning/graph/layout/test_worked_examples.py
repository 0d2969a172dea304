"""Both worked examples of the source document, by the whole way: ONNX Runtime runs each model under its
profiler, the profile says how often each part runs, and the layouts are solved with the document's times.

The document compares two plans, each with one reorder behind A; so there are no other reorders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto

from opatlas.graph.linked import unique_name
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.plan.profiling import profile_model
from tests.tuning.graph.layout.making import Reorders, body, built, of, option, paths, same, value
from tuning.graph.layout.counts import branch_probabilities, control_flow, iterations
from tuning.graph.layout.model import Tables, layouts_of
from tuning.graph.layout.problem import LayoutOption
from tuning.graph.layout.solving import solve

MS = 1000.0
"""The document's times are milliseconds."""


def by_layout(first_ms: float, second_ms: float) -> list[LayoutOption]:
    return same(L1=first_ms * MS, L2=second_ms * MS)


def plan_ms(
    graph: ModelGraph, tables: Tables, reorder_ms: float, profile: ModelProfile | None, plan: str = ""
) -> tuple[float, set[str]]:
    """What the best layouts take, and which they are; of one ``plan`` (L1 or L2), what it takes."""
    if plan:
        tables = {at: [one for one in own if set(one.inputs) <= {"L0", plan}] for at, own in tables.items()}
    reorders = Reorders({("L0", "L1"): reorder_ms * MS, ("L0", "L2"): reorder_ms * MS})
    found = layouts_of(
        graph, tables, reorders, profile, given={"x": "L0"}, wanted=dict.fromkeys(graph.output_names, "any")
    )
    assert found.without == ()
    solution = solve(found.problem)
    nodes = {node.name: node for node in found.problem.nodes}
    chosen = {nodes[one].options[solution.chosen[one]].inputs[0] for one in map(unique_name, tables)}
    return solution.costs.total_us / MS, chosen - {"L0"}


# ---- the branch: [0038]–[0066] ----------------------------------------------------------------------

X = np.arange(1, 5, dtype=np.float32)
BRANCH = ModelGraph(
    built(
        [
            of("Neg", "A", "x", "a"),
            of("Abs", "B", "a", "b"),
            of(
                "If", "S", "c", "m",
                then_branch=body([of("Relu", "C", "b", "t")], [], ["t"]),
                else_branch=body([of("Neg", "D", "b", "e")], [], ["e"]),
            ),
        ],
        [value("x", [4]), value("c", [], TensorProto.BOOL)],
        ["m"],
    )
)  # fmt: skip


def branch_tables() -> Tables:
    at = paths(BRANCH)
    return {
        at["A"]: [option(2 * MS, "L0", "L0")],
        at["B"]: by_layout(1, 1),
        at["C"]: by_layout(10, 20),
        at["D"]: by_layout(90, 30),
    }


def branched(conditions: Sequence[bool]) -> ModelProfile:
    return profile_model(BRANCH, [{"x": X, "c": np.array(one)} for one in conditions], 1)


def test_without_a_profile_both_branches_count_and_plan_2_wins() -> None:
    """[0056]–[0059]: 105 to 55 ms (the text names plan 1 twice in [0056]; 20 + 30 ms are plan 2's)."""
    tables = branch_tables()
    assert plan_ms(BRANCH, tables, 2, None, "L1")[0] == pytest.approx(105)
    assert plan_ms(BRANCH, tables, 2, None, "L2")[0] == pytest.approx(55)
    best, layouts = plan_ms(BRANCH, tables, 2, None)
    assert best == pytest.approx(55) and layouts == {"L2"}


def test_where_the_profile_says_that_c_is_taken_nine_times_in_ten_plan_1_wins() -> None:
    """[0062]–[0065]: 23 to 26 ms. Plan 1 is L1: that [0065] calls it L2 is a slip."""
    tables, seen = branch_tables(), branched([True] * 5 + [False] + [True] * 4)
    [branch] = control_flow(TypedNodes.of_graph(BRANCH))
    assert branch.triple == ("2", "2/0/0", "2/1/0")
    assert branch_probabilities(seen, branch) == (0.9, 0.1)
    assert plan_ms(BRANCH, tables, 2, seen, "L1")[0] == pytest.approx(23)
    assert plan_ms(BRANCH, tables, 2, seen, "L2")[0] == pytest.approx(26)
    best, layouts = plan_ms(BRANCH, tables, 2, seen)
    assert best == pytest.approx(23) and layouts == {"L1"}


def test_where_d_is_taken_as_often_plan_2_wins_again() -> None:
    best, layouts = plan_ms(BRANCH, branch_tables(), 2, branched([True, False]))
    assert best == pytest.approx(2 + 2 + 1 + 10 + 15) and layouts == {"L2"}


# ---- the loop: [0088]–[0106] ------------------------------------------------------------------------

LOOP = ModelGraph(
    built(
        [
            of("Neg", "A", "x", "a"),
            of(
                "Loop", "loop", "- - a", "v",
                body=body(
                    [of("Less", "gt", "c limit", "go"), of("Add", "add", "c one", "d")],
                    [
                        value("turn", [], TensorProto.INT64), value("on", [], TensorProto.BOOL),
                        value("c", None),
                    ],
                    ["go", "d"],
                ),
            ),
            of("Abs", "B", "v", "y"),
        ],
        [value("x", [])],
        ["y"],
        limit=np.float32(8.5),
        one=np.float32(1),
    )
)  # fmt: skip


def loop_tables() -> Tables:
    at = paths(LOOP)
    return {
        at["A"]: [option(0, "L0", "L0")],  # equal in both plans, as the reorder is: left out by the document
        at["gt"]: by_layout(30, 10),
        at["add"]: by_layout(30, 10),
        at["B"]: by_layout(30, 90),
    }


def looped(*begins: float) -> ModelProfile:
    """Entered once for each; the loop ends after what it carries has come beyond 8.5."""
    return profile_model(LOOP, [{"x": np.array(-one, np.float32)} for one in begins], 1)


def test_without_a_profile_a_loop_goes_round_once_and_plan_1_wins() -> None:
    """[0096]–[0098]: 90 to 110 ms."""
    tables = loop_tables()
    assert plan_ms(LOOP, tables, 0, None, "L1")[0] == pytest.approx(90)
    assert plan_ms(LOOP, tables, 0, None, "L2")[0] == pytest.approx(110)
    best, layouts = plan_ms(LOOP, tables, 0, None)
    assert best == pytest.approx(90) and layouts == {"L1"}


@pytest.mark.parametrize("begins", [(0.0,), (0.0, 0.0, 0.0), (5.0, -5.0, 0.0, 5.0, -5.0)])
def test_where_the_profile_says_ten_iterations_plan_2_wins(begins: Sequence[float]) -> None:
    """[0101]–[0103]: 290 to 630 ms; [0105] for one entry, and the right mean for several."""
    tables, seen = loop_tables(), looped(*begins)
    [loop] = control_flow(TypedNodes.of_graph(LOOP))
    assert seen.of(loop.at).count == len(begins) and iterations(seen, loop) == 10
    assert plan_ms(LOOP, tables, 0, seen, "L1")[0] == pytest.approx(630)
    assert plan_ms(LOOP, tables, 0, seen, "L2")[0] == pytest.approx(290)
    best, layouts = plan_ms(LOOP, tables, 0, seen)
    assert best == pytest.approx(290) and layouts == {"L2"}
