"""The pass: which fused operators a plan runs, which it would ask for, and that the plan runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.evidence import Ratios
from opatlas.graph.fusion.candidates import FusionCandidate, as_operators, proposals
from opatlas.graph.linked import BodyPath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.identity import Operator
from opatlas.load.kernel import LoadedKernel
from opatlas.load.onnxruntime_recipe import OrtKernel
from opatlas.load.recipe import check_recipe
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.plan import Alternative, ByBodies, ByKernel, ModelPlan, PlanStep
from tests.opatlas.graph.fusion.test_candidates import placed, typed
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, assert_same, wanted
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.opatlas.plan.test_executor import FEED, chain
from tuning.fusions import unknown_fusions
from tuning.graph.passes.draft import BY_ONNX_RUNTIME, KnownOperator, PlanDraft, PublishedKernel
from tuning.graph.passes.fusion import IN_PARTS
from tuning.graph.passes.registry import UNLESS_NAMED, passes_named, run_passes

BOTH = passes_named(["fusion", "kernels"])


def known(
    default_us: float, kernel_us: float | None = None, onnxruntime_us: float | None = None
) -> KnownOperator:
    if kernel_us is None:
        return KnownOperator(default_us, "a library's", None, onnxruntime_us)
    ratio = default_us / kernel_us
    kernel = PublishedKernel(
        1, "0" * 64, "tvm", "compiler", "tuned", kernel_us, default_us, Ratios(ratio, ratio, ratio)
    )
    return KnownOperator(default_us, "tvm tuned", kernel, onnxruntime_us)


def bodies_of(graph: ModelGraph, body: BodyPath = ()) -> Iterator[tuple[BodyPath, ModelGraph]]:
    """A model, under ``()``, and its bodies, by where they are."""
    yield body, graph
    for at, node in enumerate(graph.nodes):
        for which, one in enumerate(node.bodies):
            yield from bodies_of(one.graph, (*body, at, which))


def fusions_in(graph: ModelGraph) -> dict[BodyPath, tuple[FusionCandidate, ...]]:
    """Candidates of a model and of each of its bodies."""
    return {
        body: tuple(as_operators(proposals(typed(one)).found, placed(one))[0])
        for body, one in bodies_of(graph)
    }


class Drafted:
    """A model with its candidates, each named by its nodes, those of bodies with them."""

    def __init__(self, data: bytes) -> None:
        self.graph = ModelGraph(data)
        self.structure = structure_of(self.graph)
        self.fusions = fusions_in(self.graph)
        self.published: dict[str, KnownOperator] = {}
        every = [one for some in self.fusions.values() for one in some]
        self.operators: dict[str, Operator] = {one.placed.operator.key: one.placed.operator for one in every}
        for canonical, _ in self.graph.operators().values():
            self.operators[canonical.operator.key] = canonical.operator

    def at(self, *nodes: int) -> FusionCandidate:
        return next(one for one in self.fusions[()] if one.nodes == nodes)

    def publish(
        self, default_us: float, kernel_us: float | None, *nodes: int, onnxruntime_us: float | None = None
    ) -> None:
        key = (
            self.at(*nodes).placed.operator.key if len(nodes) > 1 else self.structure.nodes[nodes[0]].operator
        )
        self.published[key] = known(default_us, kernel_us, onnxruntime_us)

    def draft(self, *passes: str) -> PlanDraft:
        once = dict.fromkeys(self.fusions, 1.0)
        draft = PlanDraft.of_bodies(self.structure, self.published, once)
        draft = draft.each(lambda body, one: replace(one, fusions=self.fusions[body]))
        return run_passes(draft, passes or BOTH)

    def plan(self, *passes: str) -> ModelPlan:
        plan = ModelPlan.from_json(self.draft(*passes).plan(*PLACE).to_json())
        check_plan(plan, self.graph, *PLACE)
        return plan

    def load(self, by: ByKernel) -> LoadedKernel:
        recipe = check_recipe({"library": "onnxruntime", "call": "session"}, 1)
        return OrtKernel(self.operators[by.operator], recipe)


@pytest.fixture
def six() -> Drafted:
    """Tanh → Relu, three times; each default takes 10 µs alone."""
    made = Drafted(chain(6))
    made.publish(10.0, None, 0)
    made.publish(10.0, None, 1)
    return made


def test_passes_run_in_their_order_and_fusion_is_asked_for_by_name() -> None:
    assert passes_named(["layout", "fusion", "kernels"]) == (*BOTH, "layout") and passes_named(
        None
    ) == UNLESS_NAMED == ("kernels",)


def test_a_fused_operator_runs_where_it_beats_the_sum_of_its_parts(six: Drafted) -> None:
    six.publish(16.0, 12.0, 0, 1)
    plan = six.plan()
    assert [step.nodes for step in plan.steps] == [(0, 1), (2, 3), (4, 5)]
    assert plan.predicted_us == 36.0
    assert [(one.said, one.median_us) for one in plan.steps[0].over] == [(IN_PARTS, 20.0)]


def test_one_that_does_not_leaves_the_plan_as_it_was(six: Drafted) -> None:
    before = six.plan("kernels")
    six.publish(24.0, 21.0, 0, 1)
    assert six.plan() == before


def test_its_parts_are_as_the_plan_has_them_by_then(six: Drafted) -> None:
    """12 µs beat two defaults and not two kernels of 5 µs."""
    six.publish(10.0, 5.0, 0)
    six.publish(10.0, 5.0, 1)
    six.publish(16.0, 12.0, 0, 1)
    assert all(len(step.nodes) == 1 for step in six.plan().steps)
    assert [len(step.nodes) for step in six.plan("fusion").steps] == [2, 2, 2]


def test_a_fused_operator_stands_in_the_place_of_its_parts_kernels(six: Drafted) -> None:
    six.publish(10.0, 8.0, 0)
    six.publish(10.0, 8.0, 1)
    six.publish(16.0, 12.0, 0, 1)
    assert len(six.draft("kernels").chosen) == 6
    assert {node: one.fused for node, one in six.draft().chosen.items()} == {1: (0, 1), 3: (2, 3), 5: (4, 5)}


def test_what_is_not_published_is_asked_for_by_what_it_might_save(six: Drafted) -> None:
    six.publish(16.0, 12.0, 0, 1)
    six.publish(16.0, None, 1, 2)  # explored: only a library has it, which does not run in a model
    draft = six.draft()
    asked = [(draft.fusions[one.option].nodes, one.gain_us) for one in draft.questions]
    assert asked[0] == (tuple(range(6)), 50.0)
    assert all(nodes not in ((0, 1), (2, 3), (4, 5), (1, 2), (3, 4)) for nodes, _ in asked)
    assert [gain for _, gain in asked] == sorted((gain for _, gain in asked), reverse=True)


def test_a_fused_kernel_saves_nothing_of_what_a_product_computes() -> None:
    """MatMul → Relu → MatMul → Relu, the products alone by ONNX Runtime in 100 µs."""
    shapes = {"x": (4, 16), "w": (16, 16)}
    nodes = [("MatMul", "xw", "a"), ("Relu", "a", "b"), ("MatMul", "bw", "c"), ("Relu", "c", "y")]
    made = Drafted(
        helper.make_model(
            helper.make_graph(
                [helper.make_node(kind, [*given], [out]) for kind, given, out in nodes],
                "products",
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, at) for name, at in shapes.items()],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 16))],
            )
        ).SerializeToString()
    )
    made.publish(10.0, None, 1)

    def asked(kernel_us: float | None) -> dict[tuple[int, ...], float]:
        made.publish(120.0, kernel_us, 0, onnxruntime_us=100.0)
        draft = made.draft()
        products = [one.operator.op_types.count("MatMul") for one in unknown_fusions(draft)]
        assert products == sorted(products), "where kernels win no product, one is less unlikely than two"
        return {draft.fusions[one.option].nodes: round(one.gain_us, 3) for one in draft.questions}

    assert asked(None)[0, 1] == 10.0 and asked(None)[0, 1, 2, 3] == 20.0
    assert asked(104.0)[0, 1] == 6.0  # a kernel's product takes 4 µs more than what it would replace
    assert (0, 1) not in asked(150.0)


def test_a_kernel_is_held_against_onnx_runtime_which_runs_what_is_left(six: Drafted) -> None:
    """8 µs are less than the default's 10 and more than ONNX Runtime's 6."""
    six.publish(10.0, 8.0, 0, onnxruntime_us=6.0)
    six.publish(10.0, 8.0, 1, onnxruntime_us=9.0)
    plan = six.plan("kernels")
    assert [step.nodes for step in plan.steps if isinstance(step.by, ByKernel)] == [(1,), (3,), (5,)]
    assert plan.steps[1].over == (Alternative(BY_ONNX_RUNTIME, 9.0),)
    assert plan.predicted_us == 3 * (6.0 + 8.0)


def test_nodes_that_onnx_runtime_fuses_best_are_left_to_it(six: Drafted) -> None:
    """Not even their own kernels, which are faster one by one, run then."""
    six.publish(10.0, 8.0, 0, onnxruntime_us=9.0)
    six.publish(10.0, 8.0, 1, onnxruntime_us=9.0)
    six.publish(16.0, 12.0, 0, 1, onnxruntime_us=11.0)
    plan = six.plan()
    assert not plan.kernels and six.draft().together == {0: 0.0, 1: 11.0, 2: 0.0, 3: 11.0, 4: 0.0, 5: 11.0}
    assert plan.predicted_us == 33.0


def test_an_operator_revoked_since_runs_in_parts(six: Drafted) -> None:
    six.publish(16.0, 12.0, 0, 1)
    assert len(six.plan().kernels) == 3
    del six.published[six.at(0, 1).placed.operator.key]
    assert not six.plan().kernels


def test_no_pass_changes_what_it_is_given(six: Drafted) -> None:
    six.publish(16.0, 12.0, 0, 1)
    draft = six.draft("kernels")
    again = run_passes(draft, ["fusion"])
    assert not draft.chosen and len(again.chosen) == 3


def test_the_plan_gives_what_onnx_runtime_gives(six: Drafted) -> None:
    six.publish(16.0, 12.0, 0, 1)
    running = Executor(six.graph, six.plan(), six.load, threads=1)
    assert_same(running.run(FEED), wanted(chain(6), FEED))
    assert len(running.artifacts) == 1
    running.close()


@pytest.mark.parametrize("seed", range(16))
def test_random_models_give_what_onnx_runtime_gives_by_whatever_is_fused(seed: int) -> None:
    made, data, drafted = random_draft(seed)
    running = Executor(drafted.graph, drafted.plan(), drafted.load, threads=1)
    for feed in (made.feed(1), made.feed(2), made.feed(1)):
        for one, other in zip(running.run(feed), wanted(data, feed), strict=True):
            if one.size or other.size:  # nothing has a shape that ONNX Runtime inferred, by parts another one
                assert_same([one], [other])
    running.close()


def test_most_of_them_have_fused_operators_and_many_in_bodies() -> None:
    plans = [random_draft(seed)[2].plan() for seed in range(16)]
    assert sum(bool(fused_steps(plan.steps)) for plan in plans) >= 12
    in_bodies = [step for plan in plans for step in plan.steps if isinstance(step.by, ByBodies)]
    assert sum(len(fused_steps((step,))) for step in in_bodies) >= 8


def fused_steps(steps: tuple[PlanStep, ...]) -> list[PlanStep]:
    """Those of bodies included."""
    found = [one for one in steps if isinstance(one.by, ByKernel) and len(one.nodes) > 1]
    for one in steps:
        if isinstance(one.by, ByBodies):
            found += [step for plan in one.by.plans for step in fused_steps(plan.steps)]
    return found


def random_draft(seed: int) -> tuple[RandomBodies | RandomModel, bytes, Drafted]:
    """With branches and loops, weights, shapes that only a run knows, and most of the candidates measured."""
    made = RandomBodies(seed, nodes=12) if seed % 2 else RandomModel(seed, nodes=16)
    data = made.build() if isinstance(made, RandomBodies) else made.build(3)
    drafted, random = Drafted(data), np.random.default_rng(seed)
    for key in drafted.structure.operator_keys:
        drafted.published[key] = known(10.0, 9.0 if random.random() < 0.3 else None)
    for one in (one for some in drafted.fusions.values() for one in some):
        if random.random() < 0.8:
            drafted.published.setdefault(one.placed.operator.key, known(50.0, float(random.uniform(1, 25))))
    return made, data, drafted
