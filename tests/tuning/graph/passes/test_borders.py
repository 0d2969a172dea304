"""Kernels that pay for the cuts they make, and those that do not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from onnx import TensorProto

from opatlas.graph.profile import MIB, BorderCosts, ModelProfile, NodeProfile
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.graph.types import TensorType
from opatlas.plan.borders import Borders
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import IN_PLACE, ByFramework, ByKernel, PlanStep
from tests.tuning.graph.passes.test_fusion import known
from tuning.graph.passes.borders import worth_their_borders
from tuning.graph.passes.draft import AssumedTimes, PlanDraft
from tuning.graph.passes.kernels import best_kernels

MIB_OF_ONE = TensorType(TensorProto.FLOAT, (1, 8, 128, 256))
"""A value of a MiB in even channels."""
COSTS = BorderCosts(handoff_us=2.0, us_per_mib=100.0)


def structure(reads: Sequence[Sequence[int]], op_type: str = "Conv") -> ModelStructure:
    """Value 0 is given, node n makes value n + 1 of what it ``reads``; the last one leaves."""
    nodes = tuple(
        StructureNode(op_type, "", tuple(each), (at + 1,), operator=f"o1:{at:064d}", tensors=tuple(each))
        for at, each in enumerate(reads)
    )
    return ModelStructure("m1:x", (0,), (len(reads),), nodes, (MIB_OF_ONE,) * (len(reads) + 1))


def chain(length: int) -> ModelStructure:
    return structure([[at] for at in range(length)])


def draft(
    made: ModelStructure, left_us: Sequence[float], kernel_us: Sequence[float | None], *, costs: bool = True
) -> PlanDraft:
    """With each kernel that takes less than its node does in place."""
    published = {node.operator: known(1000.0, us) for node, us in zip(made.nodes, kernel_us, strict=True)}
    nodes = {(at,): NodeProfile(1, us, us) for at, us in enumerate(left_us)}
    profile = ModelProfile("m1:x", "", "onnxruntime", 1, nodes, COSTS if costs else None)
    return best_kernels(PlanDraft.of_bodies(made, published, {(): 1.0}, profile=profile))


def planned_us(made: PlanDraft) -> float:
    """Of one run, ends with it: as a plan's time is predicted."""
    plan = made.plan("t1:x", "s1:x")
    assert plan.predicted_us is not None
    return plan.predicted_us


def test_kernels_are_weighed_against_what_onnx_runtime_takes_in_place() -> None:
    made = draft(chain(3), [100.0, 300.0, 500.0], [200.0, 200.0, None])
    assert {at: one.median_us for at, one in made.chosen.items()} == {1: 200.0}
    [over] = made.chosen[1].over
    assert (over.said, over.median_us) == (IN_PLACE, 300.0)
    untimed = draft(chain(3), [100.0, 300.0, 500.0], [200.0, 200.0, None], costs=False)
    assert set(untimed.chosen) == {0, 1}  # alone: 1,000 µs each


def test_one_that_saves_less_than_its_ends_cost_is_left_out() -> None:
    """A value in and one out, a MiB each, cost 200 µs and two parts more: 4."""
    for gain_us, kept in ((198.0, set[int]()), (210.0, {1})):
        made = draft(chain(3), [500.0] * 3, [None, 500.0 - gain_us, None])
        assert set(worth_their_borders(made).chosen) == kept, gain_us


def test_several_one_after_the_other_share_their_ends() -> None:
    made = draft(chain(5), [500.0] * 5, [None, 410.0, 410.0, 410.0, None])
    assert set(worth_their_borders(made).chosen) == {1, 2, 3}
    assert planned_us(worth_their_borders(made)) == 2 * 500 + 3 * 410 + 200 + 2 * 2
    alone = draft(chain(5), [500.0] * 5, [None, 410.0, None, 410.0, None])
    assert not worth_their_borders(alone).chosen


def test_what_else_is_cut_counts() -> None:
    """Node 1 reads and makes nothing in blocks, but a value goes by it from node 0 to node 2: it cuts the
    model all the same, where steps run one after the other."""
    made = structure([[0], [0], [1, 2]])
    types = list(made.types)
    types[2] = TensorType(TensorProto.FLOAT, (1, 8))
    made = replace(made, types=tuple(types))
    assert not worth_their_borders(draft(made, [500.0] * 3, [None, 310.0, None])).chosen
    assert set(worth_their_borders(draft(made, [500.0] * 3, [None, 290.0, None])).chosen) == {1}


def test_without_what_cuts_cost_all_stay() -> None:
    made = draft(chain(3), [500.0] * 3, [None, 400.0, None], costs=False)
    assert worth_their_borders(made) is made and set(made.chosen) == {1}


def test_a_fused_kernel_is_one_and_what_is_channels_last_stays() -> None:
    made = draft(chain(4), [500.0] * 4, [None] * 4)
    by = ByKernel("o1:f", "0" * 64, (1,))
    fused = replace(made, chosen={2: NodeChoice(by, 850.0, fused=(1, 2))})
    assert not worth_their_borders(fused).chosen  # saves 150
    fused = replace(made, chosen={2: NodeChoice(by, 750.0, fused=(1, 2))})
    assert set(worth_their_borders(fused).chosen) == {2}
    laid = dict.fromkeys((1, 2), AssumedTimes(None, 500.0))
    kept = replace(made, chosen={2: NodeChoice(by, 850.0, fused=(1, 2))}, assumed=laid)
    assert set(worth_their_borders(kept).chosen) == {2}


@pytest.mark.parametrize("seed", range(25))
def test_in_a_chain_no_set_of_kernels_takes_less(seed: int) -> None:
    random_ = random.Random(seed)
    length = random_.randint(2, 8)
    left = [random_.uniform(200, 600) for _ in range(length)]
    kernels = [random_.choice([None, one - random_.uniform(0, 200)]) for one in left]
    made = draft(chain(length), left, kernels)
    least = min(
        planned_us(replace(made, chosen={at: made.chosen[at] for at in some}))
        for count in range(len(made.chosen) + 1)
        for some in combinations(made.chosen, count)
    )
    assert planned_us(worth_their_borders(made)) == pytest.approx(least)


@pytest.mark.parametrize("seed", range(25))
def test_in_any_graph_it_takes_no_more_than_all_or_none_of_them(seed: int) -> None:
    random_ = random.Random(seed)
    length = random_.randint(3, 12)
    reads = [[0]] + [
        sorted({at, *(random_.randint(0, at) for _ in range(random_.randint(0, 2)))})
        for at in range(1, length)
    ]
    left = [random_.uniform(200, 600) for _ in range(length)]
    kernels = [random_.choice([None, one - random_.uniform(0, 400)]) for one in left]
    made = draft(structure(reads), left, kernels)
    best = planned_us(worth_their_borders(made))
    assert best <= planned_us(made) + 1e-9 and best <= planned_us(replace(made, chosen={})) + 1e-9


def test_blocks_end_where_channels_do_not_come_out_even_and_where_nobody_hands_them_on() -> None:
    odd = TensorType(TensorProto.FLOAT, (1, 6, 4, 4))
    made = structure([[0], [1], [2], [3]])
    nodes = [
        replace(one, op_type=op) for one, op in zip(made.nodes, ["Conv", "Relu", "Tan", "Relu"], strict=True)
    ]
    made = replace(made, nodes=tuple(nodes))
    assert Borders.of_structure(made).blocked == {1: MIB, 2: MIB}
    assert Borders.of_structure(replace(made, types=(MIB_OF_ONE, odd, *made.types[2:]))).blocked == {}
    assert Borders.of_structure(replace(made, outputs=(2,))).blocked == {1: MIB}
    region = PlanStep((1, 2), (3,), ByFramework("onnxruntime"))
    assert Borders.of_structure(made).bytes_of(region) == MIB  # what it reads; value 2 stays within
