"""Each route says of each kind of target whether it is for it."""

from __future__ import annotations

import pytest

from tests.catalog.making import GPU
from tuning.routes.base import No, Route
from tuning.routes.registry import ROUTES


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_what_is_for_processors_says_so_of_a_gpu(route: Route) -> None:
    answer = route.available(GPU)
    assert isinstance(answer, No)
    assert "cuda" in answer.reason
