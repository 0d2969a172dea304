"""What matters changes the key; what does not, does not."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from opatlas.errors import InvalidOperator
from opatlas.identity import Operator, parse_operator
from tests.opatlas.identity.examples import (
    EXAMPLES,
    GRAPHS,
    MATRIX,
    TOKENS,
    Document,
    known,
    node,
    tensor,
    weight,
)

ALL = [parse_operator(document) for document in (*EXAMPLES, *GRAPHS)]


def changes(document: Document) -> Iterator[tuple[str, Document]]:
    """Every change of one field of a canonical document, valid or not."""

    def with_change(path: list[Any], value: Any) -> tuple[str, Document]:
        changed = copy.deepcopy(document)
        changed.pop("produced")
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return f"{path} = {value!r}", changed

    for i, item in enumerate(document["inputs"]):
        here = ["inputs", i]
        for axis, dim in enumerate(item["shape"] if "data" not in item else ()):
            for other in (dim + 1, dim + 2, 2 * dim, 1 if dim > 1 else 3):
                yield with_change([*here, "shape", axis], other)
        for dtype in ("float32", "float16", "float64", "int32", "int64", "bool"):
            if dtype != item["dtype"] and "data" not in item:
                yield with_change([*here, "dtype"], dtype)
        if "data" not in item:
            yield with_change([*here, "role"], "const" if item["role"] == "runtime" else "runtime")
            if any(dim > 1 for dim in item["shape"]):
                yield with_change([*here, "strides"], [3 * dim for dim in strides_of(item["shape"])])
                yield with_change([*here, "strides"], [0 for _ in item["shape"]])
        for k, value in enumerate(item.get("data", ())):
            yield with_change([*here, "data", k], value + 1)
    for n, made in enumerate(document["nodes"]):
        for name, value in made["attrs"].items():
            for other in other_values(name, value):
                yield with_change(["nodes", n, "attrs", name], other)
        for op in ("Tanh", "Sub", "Div", "Add", "ReduceMin", "MaxPool"):
            if op != made["op"]:
                yield with_change(["nodes", n, "op"], op)
        for port, number in enumerate(made["inputs"]):
            for other in range(min(made["outputs"])):
                if other != number:
                    yield with_change(["nodes", n, "inputs", port], other)
    for extra in range(len(document["inputs"]), len(document["inputs"]) + len(document["produced"])):
        if extra not in document["outputs"]:
            yield with_change(["outputs"], [*document["outputs"], extra])


def strides_of(shape: list[int]) -> list[int]:
    steps, step = [], 1
    for dim in reversed(shape):
        steps.insert(0, step)
        step *= dim
    return steps


def other_values(name: str, value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [1 - value] if value in (0, 1) else [value + 1, value - 1]
    if isinstance(value, float):
        return [value + 0.25, value * 3 + 0.7]
    if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
        return [[*value[:i], value[i] + 1, *value[i + 1 :]] for i in range(len(value))]
    words = {
        "approximate": ["none", "tanh"],
        "mode": ["DCR", "CRD", "nearest", "linear", "cubic", "constant", "reflect", "edge"],
        "reduction": ["none", "add", "mul"],
        "direction": ["forward", "reverse"],
        "padding_mode": ["zeros", "border"],
        "coordinate_transformation_mode": ["half_pixel", "asymmetric", "output_half_pixel"],
        "equation": ["abc,acd->abd", "abc,acd->adb", "abc,acd->bd"],
    }
    return [word for word in words.get(name, []) if word != value]


# Changes that change nothing: (operator type, part of the change, why).
SAME = (
    ("MaxPool", "'ceil_mode'", "the last window is complete either way"),
    ("LpPool", "'ceil_mode'", "the last window is complete either way"),
    ("AveragePool", "'ceil_mode'", "the last window is complete either way"),
    ("Reshape", "'allowzero'", "no dimension is 0"),
    ("Gemm", "'beta'", "there is no third operand"),
    ("Reduce", "'noop_with_empty_axes'", "the axes are named"),
    ("Slice", "['inputs', 2, 'data', 1] = 10", "steps of 3 from 2 end at 8 either way"),
    ("Slice", "['inputs', 1, 'data', 0] = 12", "a start past the end is the end"),
    ("Resize", "['nodes', 0, 'inputs', 1]", "only tf_crop_and_resize reads the region"),
    ("DequantizeLinear", "'output_dtype'] = 0", "0 means the scale's type, which was spelt out"),
)


def is_same(operator: Operator, change: str) -> bool:
    return any(operator.op_types[0].startswith(op) and part in change for op, part, _ in SAME)


def test_every_change_that_is_accepted_changes_the_key() -> None:
    accepted, collisions, keys = 0, [], set()
    for operator in ALL:
        document = operator.to_json()
        for change, changed in changes(document):
            try:
                other = parse_operator(changed)
            except InvalidOperator:
                continue
            if other.key == operator.key and is_same(operator, change):
                continue
            accepted += 1
            keys.add(other.key)
            if other.key == operator.key:
                collisions.append((operator.op_types, change))
    assert not collisions, collisions[:20]
    assert accepted >= 1000
    assert len(keys) >= 1000


def test_examples_have_keys_of_their_own() -> None:
    assert len({operator.key for operator in ALL}) == len(ALL)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "MatMul"])
def test_aliasing_is_part_of_the_key(op: str) -> None:
    value = {"shape": [4, 4], "dtype": "float32"}
    twice = {"op": op, "inputs": [value, {"same_as": 0}]}
    two = {"op": op, "inputs": [value, value]}
    assert parse_operator(twice).key != parse_operator(two).key
    assert len(parse_operator(twice).inputs) == 1


@pytest.mark.parametrize(
    ("document", "key"),
    [
        (
            node("Conv", tensor(1, 3, 8, 8), weight(4, 3, 3, 3), auto_pad="SAME_UPPER"),
            "o1:33aa9f141fd94f602d40f506321be36ea4e8924552e1b060c2d02ae0d8d208d2",
        ),
        (
            node("LayerNormalization", TOKENS, weight(12)),
            "o1:84ec57ef942920c6c640416c7faefc91e30e025662ecb56c27c778537d7a201d",
        ),
        (
            node("Reshape", MATRIX, known(7, -1)),
            "o1:082f5f7378efdedc84cb2645a75596352df1af2d0ba064688ff3228e411e49a3",
        ),
        (GRAPHS[0], "o1:55e752386077eb7a8835ef122b1a9b0d33ffc8eb9a3390dd5125c9869c3253b4"),
    ],
)
def test_keys_do_not_move(document: Document, key: str) -> None:
    """Stored rows are found by these: a change here needs a new key version and ``rekey``."""
    assert parse_operator(document).key == key
