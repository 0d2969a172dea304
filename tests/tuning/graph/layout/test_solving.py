"""No choice of layouts costs less than the chosen one, on graphs that are small enough to try them all."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opatlas.errors import OpatlasError
from opatlas.graph.linked import BodyPath
from tests import by_day
from tests.tuning.graph.layout.making import LAYOUTS, alternatives, option, random_problem
from tuning.graph.layout import elimination, solving
from tuning.graph.layout.costing import LayoutCosts, costs_of
from tuning.graph.layout.elimination import by_elimination
from tuning.graph.layout.integer import by_integer_program
from tuning.graph.layout.problem import (
    InvalidLayouts,
    LayoutNode,
    LayoutOption,
    LayoutProblem,
    LayoutRead,
    LayoutValue,
    MarkedCost,
    on_the_way,
)
from tuning.graph.layout.solving import ELIMINATION, PROGRAM, UNIFORM, solve

EVERY = settings(max_examples=by_day.draws(150), derandomize=True)
SEEDS = st.integers(0, 1_000_000)


@EVERY
@given(SEEDS)
def test_no_choice_costs_less_than_the_chosen_one(seed: int) -> None:
    problem = random_problem(seed)
    every = list(alternatives(problem))
    result = by_integer_program(problem, 10.0)
    if not every:
        with pytest.raises(InvalidLayouts, match="No choice of layouts fits together"):
            solve(problem)
        assert result.is_infeasible
        return
    least = min(us for _, us in every)
    solution = solve(problem)
    assert solution.gap == 0 and solution.by == ELIMINATION
    assert all(solution.costs.total_us <= us + 1e-6 for _, us in every)
    assert solution.costs.total_us == pytest.approx(least, abs=1e-6)
    assert costs_of(problem, solution.chosen) == solution.costs
    assert result.chosen is not None
    assert costs_of(problem, result.chosen).total_us == pytest.approx(least, abs=1e-6)
    assert result.bound_us <= least + 1e-6


@EVERY
@given(SEEDS)
def test_what_a_choice_costs_is_its_cheapest_placement_of_reorders(seed: int) -> None:
    problem = random_problem(seed, nodes=4, misses=0.0)
    for chosen, us in itertools.islice(alternatives(problem), 12):
        assert us == pytest.approx(_by_all_placements(problem, chosen), abs=1e-9)


def _by_all_placements(problem: LayoutProblem, chosen: dict[str, int]) -> float:
    """Every set of bodies that a value could be reordered in is tried."""
    total = 0.0
    made, wanted = {}, dict[tuple[str, str], list[BodyPath]]()
    for node in problem.nodes:
        taken = node.options[chosen[node.name]]
        total += problem.counts[node.body] * taken.cost.us
        made |= dict(zip(node.makes, taken.outputs, strict=True))
        for read, layout in zip(node.reads, taken.inputs, strict=True):
            wanted.setdefault((read.value, layout), []).append(read.body)
    for (name, layout), readers in wanted.items():
        if made[name] == layout:
            continue
        value = problem.values[name]
        ways = [on_the_way(value.body, one) for one in readers]
        bodies = sorted({one for way in ways for one in way})
        us = value.reorders[made[name], layout].us
        total += us * min(
            math.fsum(problem.counts[one] for one in some)
            for size in range(1, len(bodies) + 1)
            for some in itertools.combinations(bodies, size)
            if _serves_all(some, ways)
        )
    return total


def _serves_all(some: Collection[BodyPath], ways: Collection[Collection[BodyPath]]) -> bool:
    return all(any(one in some for one in way) for way in ways)


# ---- reorders ---------------------------------------------------------------------------------------


def shared(readers: int, counts: dict[BodyPath, float], *bodies: BodyPath, us: float = 4.0) -> LayoutProblem:
    """A value in A, read in B by so many in each of these bodies."""
    nodes = [LayoutNode("maker", (), (), ("v",), (option(1, "", "A"),))]
    nodes += [
        LayoutNode(f"{where} {at}", where, (LayoutRead("v", where),), (), (option(0, "B", ""),))
        for where in bodies
        for at in range(readers)
    ]
    values = {"v": LayoutValue((), {("A", "B"): MarkedCost(us)})}
    return LayoutProblem(tuple(nodes), values, {(): 1.0} | counts)


def places(costs: LayoutCosts) -> list[BodyPath]:
    return [one.body for one in costs.reorders]


def test_a_value_is_reordered_once_for_a_layout_and_not_for_each_reader() -> None:
    assert solve(shared(40, {}, ())).costs.total_us == 1 + 4


def test_a_reorder_stands_where_it_runs_least_often() -> None:
    loop, rare = (3, 0), (4, 0)
    assert places(solve(shared(2, {loop: 10.0}, loop)).costs) == [()]  # before the loop
    inside = solve(shared(2, {rare: 0.1}, rare)).costs
    assert places(inside) == [rare] and inside.total_us == pytest.approx(1.4)  # in the branch
    both = solve(shared(1, {(4, 0): 0.9, (4, 1): 0.1}, (4, 0), (4, 1))).costs
    assert places(both) == [()]  # in neither branch: together they run as often


def test_an_estimate_in_a_cost_is_said() -> None:
    guess = MarkedCost(4.0, is_estimate=True)
    problem = shared(1, {(3, 0): 10.0}, (3, 0))
    problem = LayoutProblem(problem.nodes, {"v": LayoutValue((), {("A", "B"): guess})}, problem.counts)
    costs = solve(problem).costs
    assert costs.estimated_us == 4.0 and [one.is_estimate for one in costs.reorders] == [True]
    assert solve(shared(1, {}, ())).costs.estimated_us == 0


# ---- far from trees ---------------------------------------------------------------------------------


def dense(nodes: int, seed: int = 0) -> LayoutProblem:
    """Every node reads six of those before it."""
    chance, made = random.Random(seed), list[LayoutNode]()
    values = {}
    for at in range(nodes):
        reads = chance.sample(range(at), min(at, 6))
        values[f"v{at}"] = LayoutValue(
            (),
            {pair: MarkedCost(float(chance.randint(1, 9))) for pair in itertools.permutations(LAYOUTS, 2)},
        )
        options = tuple(
            LayoutOption((one,) * len(reads), (one,), MarkedCost(float(chance.randint(0, 30))))
            for one in LAYOUTS
        )
        read = tuple(LayoutRead(f"v{one}", ()) for one in reads)
        made.append(LayoutNode(f"n{at}", (), read, (f"v{at}",), options))
    return LayoutProblem(tuple(made), values, {(): 1.0})


def test_a_graph_that_is_no_near_tree_is_solved_by_the_integer_program() -> None:
    problem = dense(36)
    assert by_elimination(problem) is None
    solution = solve(problem, 60.0)
    assert solution.by == PROGRAM and solution.gap == 0
    chance = random.Random(1)
    for _ in range(300):  # one node changed, and all of them
        some = dict(solution.chosen)
        some[chance.choice(sorted(some))] = chance.randrange(3)
        assert solution.costs.total_us <= costs_of(problem, some).total_us + 1e-6
        other = {name: chance.randrange(3) for name in some}
        assert solution.costs.total_us <= costs_of(problem, other).total_us + 1e-6


def test_both_solvers_agree_where_both_can(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense(9)
    exact = solve(problem)
    monkeypatch.setattr(elimination, "MOST_CELLS", 1)
    again = solve(problem, 60.0)
    assert (exact.by, again.by) == (ELIMINATION, PROGRAM)
    assert again.costs.total_us == pytest.approx(exact.costs.total_us)


def test_out_of_time_the_gap_is_said() -> None:
    solution = solve(dense(300), 0.0)
    assert 0 < solution.gap <= 1
    assert solution.costs.total_us * (1 - solution.gap) >= 0
    assert solution.by in (UNIFORM, PROGRAM)


def test_a_sum_that_is_not_the_problems_own_is_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = shared(1, {}, ())
    found = by_elimination(problem)
    assert found is not None
    monkeypatch.setattr(solving, "by_elimination", lambda problem: (found[0], found[1] + 1))
    with pytest.raises(OpatlasError, match="were said to take"):
        solve(problem)


# ---- what cannot be ---------------------------------------------------------------------------------

READ = LayoutRead("v", ())
MAKER = LayoutNode("maker", (), (), ("v",), (option(1, "", "A"),))
PLAIN = {"v": LayoutValue((), {})}


def refused(*nodes: LayoutNode, values: dict[str, LayoutValue] = PLAIN, match: str) -> None:
    with pytest.raises(InvalidLayouts, match=match):
        LayoutProblem(nodes, values, {(): 1.0, (1, 0): 1.0})


def reader(*options: LayoutOption, name: str = "reader", read: LayoutRead = READ) -> LayoutNode:
    return LayoutNode(name, (), (read,), (), options)


def test_a_problem_that_cannot_be_is_refused() -> None:
    refused(MAKER, MAKER, match="same name")
    refused(reader(option(1, "A", "")), match="made by one node")
    refused(MAKER, reader(), match="no layout that it could run in")
    refused(MAKER, reader(option(1, "A A", "")), match="reads 1 values and makes 0")
    refused(MAKER, reader(option(math.nan, "A", "")), match="finite")
    refused(MAKER, reader(option(-1, "A", "")), match="not below 0")
    refused(MAKER, reader(option(1, "A", ""), read=LayoutRead("w", ())), match="nothing makes")
    refused(MAKER, reader(option(1, "A", ""), read=LayoutRead("v", (2, 0))), match="how often")
    inner = {"v": LayoutValue((1, 0), {})}
    refused(MAKER, reader(option(1, "A", "")), values=inner, match="outside the body")
    costly = {"v": LayoutValue((), {("A", "B"): MarkedCost(math.inf)})}
    refused(MAKER, values=costly, match="reorder's cost")


def test_a_reorder_that_is_not_known_is_none() -> None:
    with pytest.raises(InvalidLayouts, match="reorders between them are not known"):
        solve(LayoutProblem((MAKER, reader(option(1, "B", ""))), PLAIN, {(): 1.0}))
    either = LayoutProblem((MAKER, reader(option(1, "B", ""), option(9, "A", ""))), PLAIN, {(): 1.0})
    assert solve(either).chosen == {"maker": 0, "reader": 1}


def test_a_choice_that_is_not_whole_has_no_cost() -> None:
    problem = LayoutProblem((MAKER,), PLAIN, {(): 1.0})
    for chosen in ({}, {"maker": 1}, {"maker": -1}):
        with pytest.raises(InvalidLayouts, match="No option is chosen for node maker"):
            costs_of(problem, chosen)
