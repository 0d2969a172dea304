"""What is stored survives its store, and a new version of the rules."""

import json

import pytest

from opatlas.errors import InvalidOperator
from opatlas.identity import Operator, parse_operator
from opatlas.identity.rekey import rekey
from tests.opatlas.identity.examples import EXAMPLES, GRAPHS, known, node, tensor


@pytest.mark.parametrize("document", [*EXAMPLES[::5], *GRAPHS])
def test_today_s_operators_keep_their_key(document: dict) -> None:
    operator = parse_operator(document)
    assert rekey(json.loads(json.dumps(operator.to_json()))) == operator


def test_an_older_spelling_gets_today_s_key() -> None:
    """As if rules had once kept negative axes and another opset."""
    old = {
        "opset": 13,
        "inputs": [{"dtype": "float32", "shape": [2, 3], "role": "runtime"}],
        "nodes": [
            {"op": "ReduceMean", "inputs": [0], "outputs": [1], "attrs": {"axes": [-1], "keepdims": 1}}
        ],
        "outputs": [1],
        "produced": [{"dtype": "float32", "shape": [2, 1], "role": "runtime"}],
    }
    assert rekey(old) == parse_operator(node("ReduceMean", tensor(2, 3), known(1)))


def test_what_is_no_longer_accepted_says_so() -> None:
    old = parse_operator(node("Relu", tensor(2, 3))).to_json()
    old["produced"][0]["shape"] = [6]
    with pytest.raises(InvalidOperator, match="declared"):
        rekey(old)


def as_postgres_writes(document: object) -> object:
    """jsonb keeps numbers as decimals: 1e+20 comes back without exponent, as an integer."""
    text = json.dumps(document)
    return json.loads(text.replace("1e+20", "1" + "0" * 20).replace("1e-05", "0.00001"))


def test_keys_survive_a_store_that_rewrites_numbers() -> None:
    for document in (
        node("LeakyRelu", tensor(2, 3), alpha=1e20),
        node("Clip", tensor(2, 3), {"value": -1e20, "dtype": "float32"}, {"value": 1e20, "dtype": "float32"}),
        node("LayerNormalization", tensor(2, 3), tensor(3), epsilon=1e-5),
        node("ConstantOfShape", known(2), value=["float32", [1], [1e20]]),
    ):
        operator = parse_operator(document)
        assert Operator.from_json(as_postgres_writes(operator.to_json())).key == operator.key  # type: ignore[arg-type]
