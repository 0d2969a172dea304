"""What people type finds the operator, however they write it."""

from __future__ import annotations

import hashlib

import pytest

from catalog.models import Operator
from catalog.registry import register_operator
from catalog.rollups.rollups import refresh_rollups
from catalog.search import Words
from catalog.search_words import MOST_WORDS, ServedBy, SizeBound, read_words
from opatlas.identity import Node, Value
from opatlas.identity import Operator as CanonicalOperator
from tests.catalog import making

SUMMARIES = (
    "MatMul float32 1000×48, 48×1536 → 1000×1536",
    "Conv float32 1×64×56×56, 64×64×3×3 → 1×64×56×56",
    "LayerNormalization float16 2×197×768, 768, 768 → 2×197×768",
    "Relu bfloat16 8×4 → 8×4",
    "MaxPool float32 1×88×81×81 → 1×88×40×40",
    "Gather int64 5000×1, 100 → 100×1",
    "Concat uint8 2×3, 2×3 → 4×3",
)
MATMUL, CONV, NORM, RELU, POOL, GATHER, CONCAT = range(len(SUMMARIES))


def key_of(summary: str) -> str:
    return f"o1:{hashlib.sha256(summary.encode()).hexdigest()}"


def found(text: str) -> set[int]:
    """By the words alone."""
    operators = [Operator(summary=summary, key=key_of(summary)) for summary in SUMMARIES]
    return {number for number, one in enumerate(operators) if Words.of(text).match(one)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1000×48", {MATMUL}),
        ("1000x48", {MATMUL}),
        ("1000 X 48", {MATMUL}),
        ("[1000, 48]", {MATMUL}),
        ("[48, 1000]", set()),
        ("(48,1536)", {MATMUL}),
        ("matmul(1536,48)", set()),
        ("48,1536", {MATMUL}),
        ("1000*48", {MATMUL}),
        ("matmul(1000,48)", {MATMUL}),
        ("matmul(1000x48, 48x1536)", {MATMUL}),
        ("1000·48 → 1000✕1536", {MATMUL}),
        ("1000x48->1000x1536", {MATMUL}),
        ("matmul: torch.Size([1000, 48])", {MATMUL}),
        ("shape=(1000, 48), dtype=torch.float32", {MATMUL}),
        ("f32[1000,48]", {MATMUL}),
        ("torch.mm 1000x48", {MATMUL}),
        ("nn.Linear", {MATMUL}),
        ("F.linear", {MATMUL}),
        ("torch.nn.Conv2d", {CONV}),
        ("jnp.matmul", {MATMUL}),
        ("max_pool2d_with_indices", {POOL}),
        ("uint8_t", {CONCAT}),
        ("shape", set()),
        ("aten::bmm", {MATMUL}),
        ("linear", {MATMUL}),
        ("conv 56x56", {CONV}),
        ("conv2d 3x3", {CONV}),
        ("aten.convolution.default", {CONV}),
        ("fp32", {MATMUL, CONV, POOL}),
        ("f32 conv", {CONV}),
        ("torch.float32 matmul", {MATMUL}),
        ("tensor(float16)", {NORM}),
        ("half", {NORM}),
        ("float16", {NORM}),
        ("np.float16", {NORM}),
        ("bf16", {RELU}),
        ("TensorProto.BFLOAT16", {RELU}),
        ("native_layer_norm", {NORM}),
        ("layer_norm half", {NORM}),
        ("max_pool2d", {POOL}),
        ("embedding", {GATHER}),
        ("long", {GATHER}),
        ("cat byte", {CONCAT}),
        ("int8", set()),
        ("conv half", set()),
        ("", set(range(len(SUMMARIES)))),
    ],
)
def test_any_writing_finds_it(text: str, wanted: set[int]) -> None:
    assert found(text) == wanted


def test_keys_are_found_by_their_beginning_with_and_without_the_version() -> None:
    for number, summary in enumerate(SUMMARIES):
        assert found(key_of(summary)[:14]) == {number}
        assert found(key_of(summary)[3:14]) == {number}
        assert found(key_of(summary)[3:].upper()) == {number}
    assert not found("o1:none")


def test_what_is_asked_of_sizes_and_routes() -> None:
    assert read_words("dim>=1024 route:tvm dim<8") == (
        SizeBound("gte", 1024),
        ServedBy("tvm"),
        SizeBound("lt", 8),
    )
    assert read_words("dim=48") == read_words("dim: 48") == read_words("48")
    assert [word.is_strange for word in read_words("dim>x relu axis=-1")] == [True, False, True]
    assert read_words("dim ≥ 1024") == read_words("dim >= 1024") == read_words("dim>=1024")
    assert read_words("route: TVM, dim<8") == read_words("route=tvm dim < 8") == read_words("route:tvm dim<8")


def test_long_texts_end() -> None:
    assert len(read_words("a " * 1000)) == MOST_WORDS
    assert len(read_words("1" + "," * 50_000 + "1")) == 2
    assert read_words("1×" * 20_000)


class TestRows:
    """The database finds what one row by itself matches."""

    @pytest.fixture
    def large(self, db: None) -> Operator:
        value = Value("float32", (8, 4096))
        return register_operator(
            CanonicalOperator((value,), (Node("Relu", (0,), (1,)),), (1,), (Value("float32", (8, 4096)),))
        )

    @pytest.mark.parametrize(
        "text",
        ["relu(8,4096)", "8x4096", "dim>=4096", "dim>4095 relu", "f32 dim<=4096", "relu dim<4097", "relu"],
    )
    def test_found(self, large: Operator, text: str) -> None:
        register_operator(making.relu(64))
        rows = Operator.objects.filter(Words.of(text).condition())
        assert large in rows and Words.of(text).match(large)
        assert all(Words.of(text).match(row) for row in rows)

    @pytest.mark.parametrize("text", ["dim>4096", "dim<4096", "relu 64", "route:tvm", "half"])
    def test_not_found(self, large: Operator, text: str) -> None:
        assert large not in Operator.objects.filter(Words.of(text).condition())
        assert not Words.of(text).match(large)

    def test_by_who_is_served(self, put, place_of) -> None:
        put(64, "eager", 1.0)
        put(64, "tvm", 2.0)
        put(32, "eager", 1.0)
        served = Operator.objects.filter(Words.of("route:tvm relu").condition())
        assert [row.key for row in served] == [making.relu(64).key]
        assert all(Words.of("route:tvm").match(row) for row in served)
        assert not served.filter(Words.of("route:eager").condition()).exists()

    def test_a_route_that_is_gone_is_one_while_its_rows_are_there(self, put) -> None:
        text = "route:gone"
        assert list(Words.of(text).in_vain())
        put(64, "gone", 2.0)
        refresh_rollups()
        assert not list(Words.of(text).in_vain()) and Words.checked(text) == Words.of(text)
