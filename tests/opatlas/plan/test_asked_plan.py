"""A plan that a session asks the service for: of the model's simpler form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import opatlas
from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.test_session import FEED, SIZE, adding, kernels_win  # noqa: F401 - a fixture
from tests.tuning.graph.making import model


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None) -> None:
    """Plans are made as they are asked for."""


def roundabout() -> bytes:
    """The same sums as :func:`adding`, with what a simpler form has not."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Add", ["same", "y"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Mul", ["one", "one"], ["ones"]),
        helper.make_node("Mul", ["t", "ones"], ["u"]),
        helper.make_node("Add", ["u", "x"], ["z"]),
    ]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"], {"one": np.array([1.0], np.float32)})
    made.ir_version = 10
    return bytes(made.SerializeToString())


def test_a_session_asks_for_a_plan_of_the_models_simpler_form(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from catalog.models import Miss, StoredPlan

    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
        stored = StoredPlan.objects.get()
        assert session.graph.key == stored.key != ModelGraph(roundabout()).key
        assert stored.passes == ["kernels", "fusion"]
        assert len(session.graph.nodes) < 6 and len(session.plan.kernels) == 2
        assert_same(session.run(None, FEED), wanted(roundabout(), FEED))
    assert Miss.objects.filter(operator__key__in=[one for one, _ in _operators(roundabout())]).exists()
    # Whoever is handed the plan later need not say which form it is of.
    with opatlas.Session(roundabout(), client=client, plan=session.plan, frameworks=()) as again:
        assert again.plan == session.plan


def _operators(data: bytes) -> list[Any]:
    graph = ModelGraph(data)
    return [(found[0].operator.key, found) for found in graph.operators().values()]


def test_without_a_service_it_goes_on_without_a_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(adding(), client=client, plan=True, frameworks=()) as session,
    ):
        assert session.standings == () and "There is no plan of the service" in caplog.text
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
