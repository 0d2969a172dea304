"""What no entry can be of is answered empty, with the reason: the job goes on."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from onnx import helper

from opatlas.errors import CallerError, InvalidOperator, UnmappedOperator

F = np.float32
X = np.ones((4, 4), F)
RECORDS = np.zeros(3, [("a", "i1"), ("b", F)])


class Odd:
    """An array of a library that does not know its size yet."""

    dtype = np.dtype(F)
    shape = (None, 3)


class Hostile:
    dtype = np.dtype(F)

    @property
    def shape(self) -> tuple[int, ...]:
        raise RuntimeError("no shape\nand more lines")


UNMAPPED = {
    "an empty batch": (("MatMul", np.ones((0, 4), F), X), "has a dimension of 0"),
    "an empty tensor": (("Relu", torch.ones(0, 3)), "has a dimension of 0"),
    "an empty shape": (("Relu", (0, 3)), "has a dimension of 0"),
    "an empty list": (("Relu", []), "has a dimension of 0"),
    "an empty result": (("Slice", X, [0], [0]), "has a dimension of 0"),
    "too many elements": (("Relu", np.broadcast_to(F(1), (1 << 31, 1 << 20))), "elements; at most"),
    "too many dimensions": (("Relu", np.ones((1,) * 20, F)), "20 dimensions; at most 8"),
    "too long a list": (("Relu", [1.0] * 5000), "at most 4096 known values"),
    "objects": (("Relu", np.array([1, "a"], object)), "dtype object"),
    "texts": (("Relu", np.array(["a"])), "dtype str32"),
    "long doubles": (("Relu", np.ones(3, np.longdouble)), "dtype float128"),
    "times": (("Relu", np.array(["2020-01-01"], "datetime64[D]")), "dtype datetime64"),
    "records": (("Relu", RECORDS), "dtype void"),
    "a type that ONNX's operator does not take": (("Relu", np.ones(3, bool)), "Relu cannot take bool"),
    "complex numbers": (("Relu", torch.ones(3, dtype=torch.complex64)), "Relu cannot take complex64"),
    "the other byte order": (("Relu", X.astype(X.dtype.newbyteorder())), "other byte order"),
    "negative strides": (("Relu", X[::-1]), "negative stride"),
    "a record's field": (("Relu", RECORDS["b"]), "no whole distances"),
    "a masked array": (("Relu", np.ma.masked_array(X, X > 0)), "masked array"),
    "a sparse tensor": (("Relu", torch.eye(3).to_sparse()), "layout is sparse_coo"),
    "a nested tensor": (("Relu", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])), "described"),
    "a size that is not known yet": (("Relu", Odd()), "cannot be described"),
    "an array that raises": (("Relu", Hostile()), "cannot be described: no shape$"),
    "a number": (("Relu", 3.0), "give an array of it"),
    "a list of lists": (("Relu", [[1.0], [2.0, 3.0]]), "not list: give an array"),
    "a list of arrays": (("Concat", [X, X]), "give an array"),
    "a size that the values decide": (("NonZero", X), "depends on its input's values"),
    "random numbers": (("RandomNormalLike", X), "random numbers"),
    "another domain": (
        (helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft"), X, X),
        "com.microsoft",
    ),
    "a whole description": (
        ({"op": "Relu", "inputs": [{"shape": [0], "dtype": "float32"}]},),
        "has a dimension of 0",
    ),
}


@pytest.mark.parametrize("what", UNMAPPED)
def test_is_answered_empty_with_the_reason(job, publish_add, what):
    publish_add()
    named, sentence = UNMAPPED[what]
    with job() as client:
        for answer in (client.lookup(*named), client.lookup(*named, wait_s=5), client.handle(*named)()):
            assert not answer and (answer.status, answer.state, answer.key) == ("miss", "refused", "")
            assert re.search(sentence, answer.reason), answer.reason
            assert "\n" not in answer.reason and answer.source == "nobody"
        with pytest.raises(CallerError, match="nothing to load"):
            answer.load()


def test_costs_no_other_its_answer_and_no_request(job, publish_add):
    publish_add()
    x, empty = np.ones(1000, F), np.ones(0, F)
    with job() as client:
        assert client.lookup("Add", x, x)
        requests = client._door.requests
        assert not client.lookup("Add", empty, empty)
        assert client.lookup("Add", x, x) and not client.lookup("Add", empty, empty)
        assert client._door.requests == requests


def test_of_many_the_others_are_answered(job, publish_add):
    publish_add()
    described = {"op": "Add", "inputs": [{"shape": [0], "dtype": "float32"}] * 2}
    known = {"op": "Add", "inputs": [{"shape": [1000], "dtype": "float32"}] * 2}
    with job() as client:
        answers = client.lookup_all([described, known, described])
        assert [bool(one) for one in answers] == [False, True, False]
        assert "dimension of 0" in answers[0].reason
        client.refresh([described, known])


def test_whoever_waits_for_it_is_told_at_once(job):
    told = []
    with job() as client:
        client.when_known(told.append, "Relu", np.ones((0, 3), F))
    assert [(one.status, one.state) for one in told] == [("miss", "refused")]


def test_masked_and_plain_arrays_are_not_mixed_up(job):
    with job(offline=True) as client:
        assert client.lookup("Relu", X).state != "refused"
        assert client.lookup("Relu", np.ma.masked_array(X, X > 0)).state == "refused"
        assert client.lookup("Relu", X).state != "refused"


def test_a_strict_client_raises(job):
    with job(strict=True) as client, pytest.raises(UnmappedOperator, match="dimension of 0"):
        client.lookup("Relu", np.ones((0, 3), F))


@pytest.mark.parametrize(
    ("named", "attrs"),
    [
        (("MatMul", X, np.ones((3, 3), F)), {}),
        (("NoSuch", X), {}),
        (("Softmax", X), {"axes": 1}),
        (("Relu", X, X), {}),
        (("Relu", (-1, 3)), {}),
        (("Relu", ((3,), "flaot32")), {}),
        (("MatMul", X, "w"), {}),
    ],
)
def test_a_mistake_of_the_caller_is_still_told(job, named, attrs):
    with job() as client, pytest.raises(InvalidOperator) as raised:
        client.lookup(*named, **attrs)
    assert not isinstance(raised.value, UnmappedOperator)


def test_attributes_may_be_arrays(job):
    with job(offline=True) as client:
        by_array = client.asked("Transpose", X, perm=np.array([1, 0]))
        assert by_array.key == client.asked("Transpose", X, perm=[1, 0]).key
