"""Which kernels of a session's own pay for the cuts they make."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import BorderCosts
from opatlas.plan.borders import Borders
from opatlas.plan.cuts import worth_their_cuts
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import ByKernel
from tests.opatlas.plan.test_executor import chain
from tests.opatlas.session.test_session import looping

LEFT_US = 100.0


def kept(graph: ModelGraph, kernel_us: Mapping[NodeAt, float], handoff_us: float) -> set[NodeAt]:
    """Of kernels of these times, where ONNX Runtime takes 100 µs for each node."""
    chosen = {at: NodeChoice(ByKernel("o1:x", "0" * 64, (0,)), us) for at, us in kernel_us.items()}
    costs = BorderCosts(handoff_us, 0.0)
    return set(worth_their_cuts(graph, chosen, lambda _: LEFT_US, Borders.of_graph(graph), costs))


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ({2: 60.0}, set()),  # saves 40, and makes one part two
        ({2: 40.0}, {2}),
        ({2: 60.0, 3: 60.0}, {2, 3}),
        ({0: 99.0, 5: 99.0}, {0, 5}),  # at the ends nothing is cut
        ({0: 99.0, 2: 60.0}, {0}),
        ({1: 40.0, 3: 40.0}, {1, 3}),
        ({1: 60.0, 2: 99.0, 3: 60.0}, {1, 2, 3}),
    ],
)
def test_a_part_more_must_be_worth_it(kernels: dict[NodeAt, float], expected: set[NodeAt]) -> None:
    assert kept(ModelGraph(chain(6)), kernels, 50.0) == expected


def test_kernels_in_bodies_stay() -> None:
    assert kept(ModelGraph(looping()), {(0, 0, 1): 99.0}, 1000.0) == {(0, 0, 1)}
