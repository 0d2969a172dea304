"""What a signed manifest may say: loaders trust the canonical form, so nothing else comes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Operator
from opatlas.load import Manifest
from opatlas.load.recipe import check_recipe, load_recipe, with_threads_of
from tests.opatlas.load.operators import Case, operator_of

X = np.ones((2, 3), np.float32)
EAGER = {"library": "torch", "call": "eager"}


def manifest(operator: Any) -> Manifest:
    return Manifest(
        kind="recipe",
        route="eager",
        operator=operator,
        setting={"threads": 1},
        recipe=EAGER,
    )


def softmax() -> dict[str, Any]:
    operator, _ = operator_of(Case("Softmax", [X], {"axis": 1}))
    return operator.to_json()


def test_an_operator_in_the_canonical_form_is_loaded() -> None:
    kernel = load_recipe(manifest(softmax()), {})
    bound = kernel.bind({0: X})
    bound()
    np.testing.assert_allclose(bound.outputs()[0], np.full((2, 3), 1 / 3), rtol=1e-6)
    kernel.close()


def test_an_operator_that_is_not_in_the_canonical_form_is_refused() -> None:
    graph = softmax()
    [node] = graph["nodes"]
    assert node["attrs"].pop("axis") == 1  # what it says by default, the last axis, is not said
    assert Operator.from_json(graph)
    with pytest.raises(LoadError, match="canonical form"):
        load_recipe(manifest(graph), {})


@pytest.mark.parametrize("operator", [{}, {"nodes": 3}, softmax() | {"nodes": [{}]}])
def test_what_is_no_operator_is_refused(operator: Any) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        load_recipe(manifest(operator), {})


@pytest.mark.parametrize("field", ["operator", "setting", "files", "needs", "recipe"])
def test_a_manifest_whose_parts_are_no_objects_is_refused(field: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        Manifest.from_json(manifest(softmax()).to_json() | {field: 5})


@pytest.mark.parametrize(
    ("had", "threads", "has"),
    [
        ({}, 3, 3),
        ({"threads": 4}, 3, 3),
        ({"threads": 4}, 6, 6),
        ({"threads": 1}, 3, 1),
        ({"threads": 3}, 2, 2),
    ],
)
def test_on_other_threads_a_call_has_all_where_it_had_all(had: Any, threads: int, has: int) -> None:
    assert check_recipe(with_threads_of({**EAGER, **had}, 4, threads), threads)["threads"] == has
    with pytest.raises(LoadError, match="is 'all'"):
        check_recipe(with_threads_of({**EAGER, "threads": "all"}, 4, threads), threads)
