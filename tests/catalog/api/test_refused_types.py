"""Operators of 4-bit elements: refused alone, set aside among others, and never a miss."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Miss, Operator
from tests.tuning.fakes import TARGET

pytestmark = pytest.mark.django_db
SAID = "ONNX packs two uint4 elements into a byte, and no implementation"
UINT4 = {"op": "Cast", "attrs": {"to": 21}, "inputs": [{"dtype": "float32", "shape": [4]}]}


def relu(size: int) -> dict[str, Any]:
    return {"op": "Relu", "inputs": [{"dtype": "float32", "shape": [size]}]}


def body(*graphs: dict[str, Any]) -> dict[str, Any]:
    return {"target": TARGET.to_json(), "operators": [{"graph": graph} for graph in graphs]}


def test_one_alone_is_a_request_that_cannot_be_answered(api: Any) -> None:
    answer = api.post("lookup", body(UINT4))
    assert answer.status_code == 400
    assert SAID in answer.json()["error"] and answer.json()["where"] == "operators[0].graph"
    assert not Miss.objects.exists() and not Operator.objects.exists()


def test_among_others_it_is_set_aside_with_the_reason_and_they_are_misses(api: Any) -> None:
    for _ in range(2):
        answer = api.post("lookup", body(relu(3), UINT4, relu(4)))
        assert answer.status_code == 200
        states = [(one["status"], one["state"]) for one in answer.json()["results"]]
        assert states == [("miss", "waiting"), ("miss", "discarded"), ("miss", "waiting")]
        assert SAID in answer.json()["results"][1]["reason"]
    assert Miss.objects.count() == 2
