"""Builds and tuning slices in children: what comes out, and what every failure becomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.measure.routes import Elsewhere, HereRoute, Obedient
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import BuiltArtifact, Candidate

PATIENT = Limits(build_s=60.0, memory_bytes=256 << 20, disk_bytes=32 << 20)
HASTY = replace(PATIENT, build_s=2.0)  # for what would never end


def wish(do: str) -> Candidate:
    return Candidate("obedient", {"do": do}, do)


def test_a_build_comes_back_with_files_schedule_and_source(
    lab: Laboratory, relu: Operator, setting: Setting, relu_bench: Bench, tmp_path: Path
) -> None:
    artifact = lab.build(Obedient(), relu, setting, wish("build"), tmp_path)
    assert isinstance(artifact, BuiltArtifact), artifact
    assert (artifact.schedule, artifact.source) == ("a schedule", "a source")
    assert artifact.facts["compiled"] is True
    assert artifact.facts["build_s"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel.so"]
    assert relu_bench.measure(artifact).timing is not None


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("refuse", Status.BUILD_FAILED, "this shape is not for me"),
        ("crash", Status.CRASHED, "SIGSEGV"),
        ("hang", Status.TIMED_OUT, ""),
        ("hog", Status.OUT_OF_MEMORY, ""),
        ("link", Status.BUILD_FAILED, "kernel.so"),
        ("nonsense", Status.BUILD_FAILED, "AttributeError"),
    ],
)
def test_a_build_that_fails_is_an_outcome(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path, do: str, status: Status, words: str
) -> None:
    limits = HASTY if status is Status.TIMED_OUT else PATIENT
    outcome = lab.build(Obedient(), relu, setting, wish(do), tmp_path, limits)
    assert isinstance(outcome, Outcome)
    assert outcome.status is status, outcome
    assert words in outcome.detail
    assert outcome.tier == lab.tier.name


def test_the_log_of_a_failed_build_is_kept(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    outcome = lab.build(Obedient(), relu, setting, wish("crash"), tmp_path, PATIENT)
    assert isinstance(outcome, Outcome)
    assert "about to crash" in outcome.log_tail


def test_a_recipe_is_built_without_a_child(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    assert isinstance(lab.build(HereRoute(), relu, setting, wish("build"), tmp_path), BuiltArtifact)
    refused = lab.build(HereRoute(), relu, setting, wish("refuse"), tmp_path)
    assert isinstance(refused, Outcome)
    assert refused.status is Status.BUILD_FAILED


def test_a_tuning_slice_goes_on_where_the_last_one_ended(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    for number in (1, 2):
        candidates = lab.tune(Obedient(), relu, setting, tmp_path, seconds=1.0)
        assert isinstance(candidates, list), candidates
        assert [candidate.label for candidate in candidates] == [f"slice {number}.0", f"slice {number}.1"]
        assert candidates[0].parameters["slice"] == number


def test_a_route_that_cannot_tune_says_so(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    from tuning.routes.registry import route

    outcome = lab.tune(route("eager"), relu, setting, tmp_path, seconds=1.0)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.UNSUPPORTED


def test_several_builds_come_back_in_their_order_failures_among_them(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    wishes = [(Obedient(), "build"), (HereRoute(), "build"), (Elsewhere(), "build"), (Obedient(), "refuse")]
    jobs = [(route, wish(do), tmp_path / str(number)) for number, (route, do) in enumerate(wishes)]
    for _, _, folder in jobs:
        folder.mkdir()
    built = lab.build_all(relu, setting, jobs, PATIENT)
    assert [isinstance(one, BuiltArtifact) for one in built] == [True, True, True, False]
    assert isinstance(built[3], Outcome) and "this shape is not for me" in built[3].detail


def test_different_zygotes_build_side_by_side(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path: Path
) -> None:
    jobs = [(route, wish("nap"), tmp_path / route.name) for route in (Obedient(), Elsewhere())]
    for _, _, folder in jobs:
        folder.mkdir()
    one, other = lab.build_all(relu, setting, jobs, PATIENT)
    assert isinstance(one, BuiltArtifact) and isinstance(other, BuiltArtifact), (one, other)
    assert max(one.facts["began"], other.facts["began"]) < min(one.facts["ended"], other.facts["ended"])
