"""The pass: which operators a plan runs channels-last, what it would ask for, and that the plan runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.fused import PlacedOperator
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.laid_out import LaidOutForm, laid_out_form
from opatlas.graph.linked import LEFT_OUT, BodyPath, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.structure import structure_of
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.identity import Operator
from opatlas.load.kernel import LoadedKernel
from opatlas.load.onnxruntime_recipe import OrtKernel
from opatlas.load.recipe import check_recipe
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.making import needed_nodes
from opatlas.plan.plan import ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.profiling import profile_model
from tests import by_day
from tests.opatlas.graph.fusion.test_candidates import placed
from tests.opatlas.graph.test_laid_out import is_picture
from tests.opatlas.plan.making import PLACE, assert_same, wanted
from tests.opatlas.plan.pictures import RandomPictures
from tests.tuning.graph.layout.making import built, of, value
from tests.tuning.graph.passes.test_fusion import bodies_of, fused_steps, fusions_in, known
from tuning.graph.layout.counts import control_flow, expected_counts
from tuning.graph.layout.forms import LayoutForm, forms_of, transpose
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.passes.draft import KnownOperator, PlanDraft
from tuning.graph.passes.registry import passes_named, run_passes
from tuning.layouts import with_forms

BEFORE = passes_named(["kernels", "fusion"])
WAYS = ((ROW_MAJOR, NHWC), (NHWC, ROW_MAJOR))


class Pictured:
    """A model whose operators are published as a test says; forms of its units, by their nodes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.graph = ModelGraph(data)
        self.structure = structure_of(self.graph)
        self.model = TypedNodes.of_graph(self.graph)
        self.published: dict[str, KnownOperator] = {}
        self.placed: dict[int, PlacedOperator] = placed(self.graph)
        self.operators: dict[str, Operator] = {one.operator.key: one.operator for one in self.placed.values()}
        self.fusions = fusions_in(self.graph)
        self.operators |= {one.operator.key: one.operator for one, _ in self.graph.operators().values()}
        self.profile: ModelProfile | None = None
        every = [one for some in self.fusions.values() for one in some]
        self.operators |= {one.placed.operator.key: one.placed.operator for one in every}

    def publish(self, node: int, us: float, kernel_us: float | None = None) -> None:
        self.published[self.structure.nodes[node].operator] = known(us, kernel_us, us)

    def form(self, *nodes: int) -> LayoutForm:
        [found] = forms_of(self.model, [nodes], self.placed)
        return found

    def publish_nhwc(self, us: float, kernel_us: float | None, *nodes: int) -> None:
        self.published[self.form(*nodes).placed.operator.key] = known(us, kernel_us, us)

    def draft(self) -> PlanDraft:
        """With what may run channels-last, as :mod:`tuning.layouts` finds it."""
        found, operators = with_forms(self.before(), self.operators, self._published_of)
        self.operators |= operators
        return run_passes(found, ["layout"])

    def before(self) -> PlanDraft:
        """Before the pass for layouts."""
        counts = expected_counts(control_flow(self.model), self.profile)
        draft = PlanDraft.of_bodies(self.structure, self.published, counts)
        draft = draft.each(lambda body, one: replace(one, fusions=self.fusions[body]))
        return run_passes(draft, BEFORE)

    def parts(self) -> list[tuple[BodyPath, PlanDraft]]:
        """The model and its bodies, before any pass."""
        counts = expected_counts(control_flow(self.model), self.profile)
        return list(PlanDraft.of_bodies(self.structure, self.published, counts).everywhere())

    def forms(self) -> dict[NodePath, LayoutForm]:
        """Of nodes by themselves, those in bodies too, by where they are."""
        found = dict[NodePath, LayoutForm]()
        for body, part in self.parts():
            graph = dict(bodies_of(self.graph))[body]
            units = [(node,) for node in range(len(graph.nodes))]
            forms = forms_of(TypedNodes.of_structure(part.structure), units, placed(graph))
            found |= {(*body, *one.nodes): one for one in forms}
        return found

    def _published_of(self, keys: Sequence[str]) -> dict[str, KnownOperator]:
        return {key: self.published[key] for key in keys if key in self.published}

    def plan(self) -> tuple[ModelPlan, ModelGraph]:
        """As it comes back from JSON, checked by who has the model."""
        plan = ModelPlan.from_json(self.draft().plan(*PLACE).to_json())
        graph = LaidOutGraph(self.graph, plan.nhwc) if plan.nhwc else self.graph
        check_plan(plan, graph, *PLACE)
        return plan, graph

    def load(self, by: ByKernel) -> LoadedKernel:
        recipe = check_recipe({"library": "onnxruntime", "call": "session"}, 1)
        return OrtKernel(self.operators[by.operator], recipe)


SHAPE = (1, 8, 14, 14)


def tower() -> bytes:
    """Conv → Relu → Conv → Conv."""
    nodes = [
        of("Conv", "c0", "x w", "a", pads=[1, 1, 1, 1]),
        of("Relu", "r", "a", "b"),
        of("Conv", "c1", "b w", "c", pads=[1, 1, 1, 1]),
        of("Conv", "c2", "c w", "z", pads=[1, 1, 1, 1]),
    ]
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32) / 8
    return built(nodes, [value("x", SHAPE)], ["z"], w=weight)


@pytest.fixture
def four() -> Pictured:
    """Each convolution takes 100 µs by ONNX Runtime, the Relu between them 10."""
    made = Pictured(tower())
    made.publish(0, 100.0)
    made.publish(1, 10.0)
    return made


def test_a_chain_runs_channels_last_with_reorders_at_its_ends(four: Pictured) -> None:
    four.publish_nhwc(90.0, 60.0, 0)
    draft = four.draft()
    plan, graph = four.plan()
    assert plan.nhwc == ChannelsLast(((0,), (1,), (2,), (3,)))
    # Of the laid-out form: a reorder, a unit of three nodes, the Relu, two more units, a reorder.
    assert [step.nodes for step in plan.steps] == [(0,), (1, 2, 3), (4,), (5, 6, 7), (8, 9, 10), (11,)]
    assert [one.by.said for one in plan.steps] == [
        "onnxruntime", "tvm tuned", "onnxruntime", "tvm tuned", "tvm tuned", "onnxruntime",
    ]  # fmt: skip
    assert [one.median_us for one in plan.steps[1].over] == [100.0]
    kind = four.model.kind(four.structure.inputs[0])
    reorder_us = ReorderCosts().cost(kind, *WAYS[0]).us
    found = draft.layouts
    assert found is not None and (found.units, found.reorders, found.row_us) == (4, 2, 310.0)
    assert plan.predicted_us == pytest.approx(190 + 2 * reorder_us) == pytest.approx(found.us)
    # Nobody has measured the reorders, nor the Relu in that layout: said, and asked for; so is the Relu as a
    # part of the convolution before it, which saves all of the Relu at best.
    assert found.estimated_us == pytest.approx(10 + 2 * reorder_us)
    asked = {one.nodes: one.gain_us for one in found.questions if one.nodes}
    assert asked == {(0, 1): 10.0, (1,): 10.0} and len(found.questions) == 4
    running = Executor(graph, plan, four.load, threads=1)
    feed = {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}
    for _ in range(2):
        assert_same(running.run(feed), wanted(four.data, feed))
    assert len(running.artifacts) == 1 and not running.fallen_back
    running.close()


def test_reorders_that_take_more_than_is_gained_leave_the_plan_as_it_was(four: Pictured) -> None:
    four.publish_nhwc(99.0, 95.0, 0)
    kind = four.model.kind(four.structure.inputs[0])
    for way in WAYS:
        four.published[transpose(kind, *way).key] = known(20.0, None, 20.0)
    draft = four.draft()
    assert draft.layouts is not None and draft.layouts.units == 0
    assert not draft.plan(*PLACE).nhwc and draft.plan(*PLACE).predicted_us == 310.0
    for way in WAYS:
        four.published[transpose(kind, *way).key] = known(1.0, None, 1.0)
    assert four.plan()[0].nhwc.nodes == 4
    four.publish_nhwc(99.0, None, 0)  # 309 µs for 310, which is no difference
    assert not four.plan()[0].nhwc


def test_what_is_not_published_takes_no_part_and_is_asked_for_where_it_could_pay(four: Pictured) -> None:
    found = four.draft().layouts
    assert found is not None and found.units == 0
    asked = {one.nodes: one.gain_us for one in found.questions if one.nodes}
    assert asked == {(0,): 100.0, (1,): 10.0, (2,): 100.0, (3,): 100.0}
    four.published[four.form(0).placed.operator.key] = known(10.0)  # by a library, which runs in no plan
    found = four.draft().layouts
    assert found is not None and found.units == 0 and not found.questions
    del four.published[four.form(0).placed.operator.key]
    four.publish(0, 0.1)  # not worth two reorders at whatever speed
    found = four.draft().layouts
    assert found is not None and not found.questions


def test_one_that_onnx_runtime_runs_fastest_channels_last_is_left_to_it(four: Pictured) -> None:
    four.publish_nhwc(50.0, None, 0)
    plan, _ = four.plan()
    assert plan.nhwc.nodes == 4 and not plan.kernels and len(plan.steps) == 1
    assert plan.predicted_us is not None and plan.predicted_us < 310.0


def test_a_plan_of_other_layouts_is_refused(four: Pictured) -> None:
    four.publish_nhwc(90.0, 60.0, 0)
    plan, _ = four.plan()
    with pytest.raises(InvalidPlan, match="channels-last"):
        check_plan(plan, four.graph, *PLACE)
    with pytest.raises(InvalidPlan, match="channels-last"):
        check_plan(plan, LaidOutGraph(four.graph, ChannelsLast(((0,),))), *PLACE)


@pytest.mark.parametrize("seed", by_day.first(6, range(24)))
def test_random_models_give_what_onnx_runtime_gives_and_no_choice_costs_less(seed: int) -> None:
    """Branches and loops with them, weighed by what a run shows."""
    made = RandomPictures(seed, nodes=7)
    drafted = random_pictured(made, seed)
    drafted.profile = profile_model(drafted.graph, [made.feed(1)], 1)
    plan, graph = drafted.plan()
    running = Executor(graph, plan, drafted.load, threads=1)
    for feed in (made.feed(1), made.feed(2), made.feed(1)):
        assert_same(running.run(feed), wanted(drafted.data, feed))
    assert not running.fallen_back
    running.close()
    found = drafted.draft().layouts
    assert found is not None and found.gap == 0
    costs = dict(costs_of_choices(drafted, seed))
    if found.units:
        assert found.us == pytest.approx(costs[plan.nhwc])
        assert found.us <= min(costs.values()) + 1e-6
    else:  # two per cent of what is laid out are no difference
        assert found.us == pytest.approx(costs[ChannelsLast()])


WITH_BODIES = range(6, 14)
"""Seeds of models most of which have some."""


@pytest.mark.parametrize("seed", WITH_BODIES)
def test_random_models_with_fused_units_in_bodies_give_what_onnx_runtime_gives(seed: int) -> None:
    made = RandomPictures(seed, nodes=7)
    drafted = random_fused(made, seed)
    plan, graph = drafted.plan()
    running = Executor(graph, plan, drafted.load, threads=1)
    for feed in (made.feed(1), made.feed(2)):
        assert_same(running.run(feed), wanted(drafted.data, feed))
    assert not running.fallen_back
    running.close()


def test_some_of_them_run_channels_last_in_bodies_as_one_operator() -> None:
    plans = [random_fused(RandomPictures(seed, nodes=7), seed).plan()[0] for seed in WITH_BODIES]
    units = [unit for plan in plans for unit in plan.nhwc.units if len(unit) > 1]
    assert sum(isinstance(unit[0], tuple) for unit in units) >= 4 and len(units) >= 8
    assert sum(bool(fused_steps(plan.steps)) for plan in plans) >= 6


def random_fused(made: RandomPictures, seed: int) -> Pictured:
    """Of most nodes that may be one operator it is published that they are by far the fastest so, and faster
    channels-last."""
    drafted, random = random_pictured(made, seed), np.random.default_rng(seed)
    graphs = dict(bodies_of(drafted.graph))
    for body, some in drafted.fusions.items():
        for one in some:
            if random.random() < 0.7:
                us = float(random.uniform(4, 10)) * len(one.nodes)
                drafted.published.setdefault(one.placed.operator.key, known(us, us, us * 1.5))
                graph = graphs[body]
                for form in forms_of(TypedNodes.of_graph(graph), [one.nodes], placed(graph)):
                    drafted.published.setdefault(form.placed.operator.key, known(us, us / 8, us))
    return drafted


def test_most_of_them_have_layouts_and_some_in_bodies() -> None:
    laid = [random_pictured(RandomPictures(seed, nodes=7), seed).plan()[0].nhwc for seed in range(24)]
    assert sum(map(bool, laid)) >= 12
    assert sum(bool(one.bodies) for one in laid) >= 6 and sum(bool(one.handed) for one in laid) >= 3


def random_pictured(made: RandomPictures, seed: int) -> Pictured:
    """Most of what could be is published, some by kernels, some not at all; nothing is fused, so that each
    unit is a node."""
    drafted, random = Pictured(made.build()), np.random.default_rng(seed)
    for _, part in drafted.parts():
        for node in part.structure.nodes:
            if node.operator:
                drafted.published.setdefault(
                    node.operator, known(us := float(random.uniform(5, 50)), None, us)
                )
    for form in drafted.forms().values():
        if random.random() < 0.8:
            us = float(random.uniform(1, 40))
            kernel_us = us * 0.8 if random.random() < 0.5 else None
            drafted.published.setdefault(form.placed.operator.key, known(us, kernel_us, us))
    return drafted


def costs_of_choices(drafted: Pictured, seed: int) -> Iterator[tuple[ChannelsLast, float]]:
    """Of what could lie channels-last (units that have a time so, what is handed on, and what is brought for
    bodies), added up from the rewritten model itself: every choice where these are few, else the one that was
    made, none, and many others."""
    model, forms = drafted.model, drafted.forms()
    units = [at for at, one in forms.items() if nhwc_us(drafted, at, one) is not None]
    handed = [
        (*one.at, place)
        for one in control_flow(model)
        for place in range(len(model.within(one.at[:-1]).handed(one.at[-1])))
        if model.within(one.at[:-1]).can_be_turned(one.at[-1], place)
    ]
    brought = {
        (*body, value)
        for body, part in drafted.parts()
        for node in part.structure.nodes
        for value in node.captured
        if is_picture(model.within(body), value)
    }
    every: list[tuple[str, NodePath]] = [("unit", at) for at in units]
    every += [("handed", one) for one in handed] + [("brought", one) for one in sorted(brought)]
    taken: Iterable[Collection[int]]
    if len(every) <= 10:
        numbers = range(len(every))
        taken = itertools.chain.from_iterable(
            itertools.combinations(numbers, count) for count in range(len(every) + 1)
        )
    else:
        random = np.random.default_rng(seed)
        taken = [np.flatnonzero(random.random(len(every)) < share) for share in (0.2, 0.5, 0.8) * 60]
    choices = [ChannelsLast(), drafted.plan()[0].nhwc]
    for some in taken:
        picked = [every[one] for one in some]
        choices.append(
            ChannelsLast(
                tuple(((at[0] if len(at) == 1 else at),) for what, at in picked if what == "unit"),
                frozenset(at for what, at in picked if what == "handed"),
                frozenset(at for what, at in picked if what == "brought"),
            )
        )
    for one in choices:
        yield one, cost_of(drafted, laid_out_form(model, one), (), forms)


def cost_of(
    drafted: Pictured, form: LaidOutForm, body: BodyPath, forms: Mapping[NodePath, LayoutForm]
) -> float:
    """Of a rewritten model, or of one of its bodies; as often as it runs."""
    part = dict(drafted.parts())[body]
    model, needed = drafted.model.within(body), frozenset(needed_nodes(part.structure))
    laid = {form.nodes[node].origin for unit in form.units for node in unit} - {LEFT_OUT}
    own = [
        nhwc_us(drafted, (*body, node), forms[*body, node]) if node in laid else part.left_us(node)
        for node in needed
        if node not in model.bodies
    ]
    kinds = [model.kind(form.values[form.nodes[one].inputs[0]].value) for one in form.reorders]
    us = math.fsum(one for one in own if one is not None)
    us += math.fsum(ReorderCosts().cost(kind, *WAYS[0]).us for kind in kinds)
    inner = [
        cost_of(drafted, laid_body(form, model, node, which), (*body, node, which), forms)
        for node in needed
        for which in range(len(model.bodies.get(node, ())))
    ]
    return part.runs * us + math.fsum(inner)


def laid_body(form: LaidOutForm, model: TypedNodes, node: int, which: int) -> LaidOutForm:
    """Of a body in which nothing lies otherwise, what it is by itself."""
    laid = form.nodes[form.node[node]].bodies
    return laid[which].graph if laid else laid_out_form(model.bodies[node][which].graph, ChannelsLast())


def nhwc_us(drafted: Pictured, at: NodePath, form: LayoutForm) -> float | None:
    found = drafted.published.get(form.placed.operator.key)
    if found is not None:
        return min(found.kernel.median_us if found.kernel else math.inf, found.left_us)
    return dict(drafted.parts())[at[:-1]].left_us(at[-1]) if form.parts else None
