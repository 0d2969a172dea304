"""A plan of the service, run by a session: checked, timed beside the default, and told of."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.errors import LoadError
from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.plan.plan import InvalidPlan, ModelPlan
from opatlas.plan.said import WHOLE
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import HEADER
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, adding, kernels_win  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None) -> None:
    """Plans are made as they are asked for."""


def _made(client: Any) -> dict[str, Any]:
    """What the service answers to the model's structure."""
    place = {"target": client.target.to_json(), "setting": client.setting.to_json()}
    structure = structure_of(ModelGraph(adding())).to_json()
    answer: dict[str, Any] = client.rest.call("POST", "/api/v1/plans", {"structure": structure, **place})
    return answer


def test_a_plan_of_the_service_runs_and_what_it_came_to_is_told(
    publish_add: Any,
    job: Any,
    signing_key: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from catalog.models import PlanMeasured, StoredPlan
    from tuning import planning

    publish_add()
    client = job()
    made = _made(client)
    assert [step["by"].get("framework") for step in made["plan"]["steps"]] == [None, "onnxruntime", None]
    planning.sign_stored(StoredPlan.objects.get(pk=made["id"]), signing_key)
    signed = client.rest.call("GET", f"/api/v1/plans/{made['id']}")
    assert signed["signature"] and signed["plan"] == made["plan"]
    with opatlas.Session(adding(), client=client, plan=signed, frameworks=()) as session:
        assert session.plan == ModelPlan.from_json(made["plan"])
        said = [one.said for one in session.standings]
        assert said == [WHOLE, "2 of 3 steps by kernels", "2 kernels inside ONNX Runtime"]
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        until(lambda: PlanMeasured.objects.filter(plan=made["id"]).exists())
        told = PlanMeasured.objects.get(plan=made["id"])
        theirs = session.standings[1]
        assert (told.plan_us, told.ratio, told.chosen) == (theirs.median_us, theirs.ratios.ratio, True)


def test_what_is_not_what_was_signed_or_does_not_fit_is_refused(
    publish_add: Any, job: Any, signing_key: Any
) -> None:
    from catalog.models import StoredPlan
    from tuning import planning

    publish_add()
    client = job()
    made = _made(client)
    planning.sign_stored(StoredPlan.objects.get(pk=made["id"]), signing_key)
    signed = client.rest.call("GET", f"/api/v1/plans/{made['id']}")

    def given(**changes: Any) -> Any:
        document = copy.deepcopy(signed)
        document["plan"] |= changes.pop("plan", {})
        return opatlas.Session(adding(), client=client, plan=document | changes, frameworks=())

    with pytest.raises(LoadError, match="does not fit the plan"):
        given(plan={"model": "m1:" + "0" * 64})
    with pytest.raises(LoadError, match="is not trusted"):
        given(signer="0" * 64)
    for what in ("model", "target", "setting"):  # nobody vouches for it, and it is checked all the same
        with pytest.raises(InvalidPlan, match=f"for the {what}"):
            given(plan={what: "x1:" + "0" * 64}, signature="")
    with pytest.raises(InvalidPlan, match="of version 2"):
        given(plan={"plan": 2}, signature="")


def test_a_plan_whose_kernels_are_served_no_more_leaves_the_model_as_it_was(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    publish_add()
    client = job()
    made = _made(client)
    for step in made["plan"]["steps"]:
        if "artifact" in step["by"]:
            step["by"]["artifact"] = "0" * 64
    with opatlas.Session(adding(), client=client, plan=made["plan"], frameworks=()) as session:
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert not session._executor.artifacts


FUSED = (
    HEADER
    + """
#include <math.h>
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *y = t[1].data;
  float* z = t[2].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++) z[i] = tanhf(x[i] + y[i]);
  return n != 3;
}
"""
)


def test_a_plan_with_a_fused_operator_runs_by_its_kernel(
    publish_add: Any,
    publish_all: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    """Add → Tanh as one, which the session looks up beside the nodes' own operators."""
    graph = ModelGraph(adding())
    fused = operator_of(graph, [0, 1], graph.nodes[1].outputs).operator
    tanh = graph.operator(1)
    assert tanh is not None
    publish_add()
    publish_all([tanh[0].operator])
    publish_add(source=FUSED, operator=fused, size=1001)
    client = job()
    place = {"target": client.target.to_json(), "setting": client.setting.to_json()}
    sent = {"structure": structure_of(graph).to_json(), "passes": ["kernels", "fusion"], **place}
    made = client.rest.call("POST", "/api/v1/plans", sent)
    steps = made["plan"]["steps"]
    assert [step["nodes"] for step in steps] == [[0, 1], [2]] and made["passes"] == ["kernels", "fusion"]
    assert steps[0]["by"]["operator"] == fused.key and steps[0]["predicted_us"] == 10.0
    by = {one["operator"]: (one["by"], one["nodes"]) for one in made["choices"]}
    assert by[fused.key] == ("kernel", [0, 1]) and by[tanh[0].operator.key] == ("fused", [1])
    with opatlas.Session(adding(), client=client, plan=made, frameworks=()) as session:
        assert [len(step.nodes) for step in session.plan.steps] == [2, 1]
        assert len(session._executor.artifacts) == 2
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert len(session._executor.artifacts) == 2  # neither gave way to the default
