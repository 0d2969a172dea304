"""A profile as a value: read from ONNX Runtime's file, merged, kept, and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from opatlas.graph import profile
from opatlas.graph.linked import NodePath
from opatlas.graph.profile import BorderCosts, InvalidProfile, ModelProfile, NodeProfile, from_onnx_runtime

PLACES: Mapping[str, NodePath] = {"first": (0,), "choice": (1,), "then": (1, 0, 0), "else": (1, 1, 0)}


def event(name: str, us: float = 0, **more: Any) -> dict[str, Any]:
    return {"cat": "Node", "ph": "X", "name": name, "dur": us, "args": {}, **more}


RUN = event("model_run", 400, cat="Session")
EVENTS = [
    event("model_loading_uri", 50, cat="Session"),
    *(event("first_kernel_time", us) for us in (10, 14)),
    *(event("choice_kernel_time", us) for us in (100, 60)),
    event("then_kernel_time", 70),
    event("else_kernel_time", 40),
    event("ReorderInput_kernel_time", 5),
    event("then_fence_before", 1),
    RUN,
    RUN,
]


def read(events: Any, **more: Any) -> ModelProfile:
    return from_onnx_runtime(events, PLACES.get, model="m1:x", **more)


def test_counts_and_times_are_read_by_node() -> None:
    found = read(EVENTS, version="v1", by="onnxruntime 1.31.1")
    assert (found.model, found.version, found.by, found.runs) == ("m1:x", "v1", "onnxruntime 1.31.1", 2)
    assert found.nodes == {
        (0,): NodeProfile(2, 24.0, 24.0),
        (1,): NodeProfile(2, 160.0, 50.0),  # without what its branches took
        (1, 0, 0): NodeProfile(1, 70.0, 70.0),
        (1, 1, 0): NodeProfile(1, 40.0, 40.0),
    }
    assert found.of((0,)).total_per_run_us == 12.0 and found.of((1,)).self_per_run_us == 25.0
    assert found.of((7,)).count == 0 and found.of((7,)).total_per_run_us is None


def test_runs_are_merged() -> None:
    one, other = read(EVENTS), read([event("first_kernel_time", 6), event("then_kernel_time", 2), RUN])
    both = one.merged(other)
    assert both.runs == 3 and both == other.merged(one)
    assert both.of((0,)) == NodeProfile(3, 30.0, 30.0) and both.of((1, 0, 0)).count == 2
    assert both.of((1, 1, 0)) == one.of((1, 1, 0))
    assert NodeProfile(1, 2.0, None) + NodeProfile(2, 3.0, 3.0) == NodeProfile(3, 5.0, None)


def test_what_is_not_of_one_model_version_and_framework_is_not_merged() -> None:
    one = read(EVENTS, version="v1")
    assert one.merged(read(EVENTS)).version == ""  # one of them could be of any
    for other, said in (
        (from_onnx_runtime(EVENTS, PLACES.get, model="m1:y"), "of model m1:y…, not of m1:x"),
        (read(EVENTS, version="v2"), "of version 'v2' of the model, not of 'v1'"),
        (read(EVENTS, version="v1", by="executor"), "by onnxruntime, the other by executor"),
    ):
        with pytest.raises(InvalidProfile, match=said):
            one.merged(other)


def test_a_profile_comes_back_from_json() -> None:
    found = read(EVENTS, version="v1")
    assert ModelProfile.from_json(json.loads(json.dumps(found.to_json()))) == found
    untimed = ModelProfile("m1:x", "", "executor", 1, {(0,): NodeProfile(1, None, None)})
    assert ModelProfile.from_json(json.loads(json.dumps(untimed.to_json()))) == untimed
    in_place = found.in_place(46.0, BorderCosts(2.0, 150.0))
    assert ModelProfile.from_json(json.loads(json.dumps(in_place.to_json()))) == in_place


def test_warm_times_are_brought_to_what_a_run_takes_without_a_profiler() -> None:
    found, borders = read(EVENTS), BorderCosts(2.0, 150.0)
    seen = found.in_place(46.0, borders)  # the profiler saw 24 + 160 in two runs
    assert seen.borders == borders and found.borders is None
    assert seen.of((0,)) == NodeProfile(2, 12.0, 12.0) and seen.of((1, 1, 0)).total_us == 20.0
    assert seen.of((1,)) == NodeProfile(2, 80.0, 25.0) and seen.runs == 2
    assert seen.merged(seen).borders == borders and seen.merged(found).borders is None
    assert borders.ends_us(1 << 19) == 77.0


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ({}, "is a JSON list of events"),
        ([], "has no run of the model"),
        ([event("first_kernel_time", 1)], "has no run of the model"),
        ([RUN, 7], "has a name and a duration"),
        ([RUN, {"dur": 1}], "has a name and a duration"),
        ([RUN, event("first_kernel_time", -1)], "has a name and a duration"),
        ([RUN, event("first_kernel_time", float("nan"))], "has a name and a duration"),
        ([RUN, event("first_kernel_time", True)], "has a name and a duration"),
    ],
)
def test_what_onnx_runtime_did_not_write_is_refused(events: Any, said: str) -> None:
    with pytest.raises(InvalidProfile, match=said):
        read(events)


def test_a_profile_that_onnx_runtime_cut_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MOST_EVENTS", len(EVENTS))
    with pytest.raises(InvalidProfile, match="its counts are wrong: profile fewer runs"):
        read(EVENTS)


NODE = {"at": [0], "count": 1, "total_us": 2.0, "self_us": None}
GOOD = {"profile": 1, "model": "m1:x", "version": "", "by": "onnxruntime", "runs": 1, "nodes": [NODE]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"profile": 2}, "form 2; form 1 is read"),
        ({"profile": True}, "form True"),
        ({"model": 7}, "'model' must be"),
        ({"by": "x" * 101}, "'by' must be"),
        ({"version": "a\nb"}, "'version' must be"),
        ({"runs": 0}, "'runs' must be"),
        ({"runs": 1.5}, "'runs' must be"),
        ({"nodes": {}}, "must be a list"),
        ({"nodes": [NODE, NODE]}, "a node twice"),
        ({"nodes": [7]}, "is a JSON object"),
        ({"nodes": [{**NODE, "at": [0, 1]}]}, "is not where a node is"),
        ({"nodes": [{**NODE, "at": []}]}, "is not where a node is"),
        ({"nodes": [{**NODE, "at": [-1]}]}, "is not where a node is"),
        ({"nodes": [{**NODE, "at": "0"}]}, "is not where a node is"),
        ({"nodes": [{**NODE, "at": [0] * 35}]}, "is not where a node is"),
        ({"nodes": [{**NODE, "count": -1}]}, "'count' must be"),
        ({"nodes": [{**NODE, "total_us": float("inf")}]}, "Times of node 0"),
        ({"nodes": [{**NODE, "self_us": "1"}]}, "Times of node 0"),
        ({"nodes": [{**NODE, "self_us": 1e300}]}, "Times of node 0"),
        ({"borders": 7}, "'borders' must be 'handoff_us' and 'us_per_mib'"),
        ({"borders": {"handoff_us": 1.0}}, "'borders' must be"),
        ({"borders": {"handoff_us": 1.0, "us_per_mib": -1}}, "'borders' must be"),
    ],
)
def test_json_that_is_no_profile_is_refused(wrong: dict[str, Any], said: str) -> None:
    assert ModelProfile.from_json(GOOD).of((0,)) == NodeProfile(1, 2.0, None)
    with pytest.raises(InvalidProfile, match=said):
        ModelProfile.from_json({**GOOD, **wrong})


@pytest.mark.parametrize("document", [None, [], "profile", 7])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(InvalidProfile, match="A profile is a JSON object"):
        ModelProfile.from_json(document)
