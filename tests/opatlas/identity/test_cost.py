"""Costs: what they say can be counted by hand."""

import pytest

from opatlas.errors import InvalidOperator
from opatlas.identity import check_fits, describe, parse_operator
from tests.opatlas.identity.examples import (
    EXAMPLES,
    GRAPHS,
    Document,
    graph,
    known,
    node,
    step,
    tensor,
    weight,
)

X = tensor(1, 64, 56, 56)


@pytest.mark.parametrize(
    ("document", "flops"),
    [
        (node("Conv", X, weight(64, 64, 3, 3), pads=[1, 1, 1, 1]), 2 * 64 * 56 * 56 * 64 * 9),
        (node("Conv", X, weight(64, 1, 3, 3), group=64, pads=[1, 1, 1, 1]), 2 * 64 * 56 * 56 * 9),
        (node("MatMul", tensor(512, 256), weight(256, 128)), 2 * 512 * 256 * 128),
        (node("MatMul", tensor(3, 4, 5), tensor(5)), 2 * 3 * 4 * 5),
        (node("Gemm", tensor(8, 16), weight(32, 16), weight(32), transB=1), 2 * 8 * 16 * 32 + 8 * 32),
        (node("Gemm", tensor(16, 8), weight(16, 32), transA=1), 2 * 8 * 16 * 32),
        (node("Relu", X), 64 * 56 * 56),
        (node("MaxPool", X, kernel_shape=[2, 2], strides=[2, 2]), 64 * 28 * 28 * 4),
        (node("ReduceSum", tensor(10, 20), known(1)), 200),
        (node("Transpose", tensor(10, 20)), 0),
        (node("Einsum", tensor(2, 3, 4), tensor(2, 4, 5), equation="bij,bjk->bik"), 2 * 2 * 3 * 4 * 5),
        (node("ConvTranspose", tensor(1, 6, 5, 5), weight(6, 4, 3, 3)), 2 * 6 * 25 * 4 * 9),
        (graph(step("MatMul", [0, 1], [2]), step("Relu", [2], [3]), inputs=[tensor(4, 5), weight(5, 6)],
               outputs=[3]), 2 * 4 * 5 * 6 + 24),
    ],
)  # fmt: skip
def test_arithmetic(document: Document, flops: float) -> None:
    assert describe(parse_operator(document)).flops == flops


def test_bytes_are_counted_once_by_storage() -> None:
    description = describe(parse_operator(node("Add", tensor(10, 20), tensor(20, dtype="float32"))))
    assert description.bytes_moved == 4 * (200 + 20 + 200)
    strided = describe(parse_operator(node("Relu", tensor(10, 20, strides=[40, 2]))))
    assert strided.bytes_moved == 4 * (9 * 40 + 19 * 2 + 1) + 4 * 200
    half = describe(parse_operator(node("Relu", tensor(10, 20, dtype="float16"))))
    assert half.bytes_moved == 2 * 400


def test_summaries_are_for_people() -> None:
    description = describe(parse_operator(node("Conv", X, weight(64, 64, 3, 3), pads=[1, 1, 1, 1])))
    assert description.op_type == "Conv"
    assert description.summary == "Conv float32 1×64×56×56, 64×64×3×3 → 1×64×56×56"
    assert description.dtype == "float32"


def test_every_example_has_a_description() -> None:
    for document in (*EXAMPLES, *GRAPHS):
        operator = parse_operator(document)
        description = describe(operator)
        assert description.flops >= 0
        assert description.bytes_moved > 0
        assert description.peak_bytes >= description.bytes_moved
        assert description.op_type.split("+")[0] == operator.op_types[0]


def test_what_does_not_fit_is_refused_before_anything_is_built() -> None:
    large = parse_operator(node("Relu", tensor(1 << 15, 1 << 15)))
    check_fits(large, 64 << 30)
    with pytest.raises(InvalidOperator, match=r"needs 32.0 GiB to be checked; the machine has 4.0 GiB"):
        check_fits(large, 4 << 30)
