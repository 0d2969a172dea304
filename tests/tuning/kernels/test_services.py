"""Submitting and deciding: every step by compare-and-swap, by the right person, and kept."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, transaction
from django.utils import timezone

from catalog.best.publishing import Publication, publish
from catalog.errors import RequestError, TooLarge, Unknown
from catalog.models import Best, BestChange, Implementation, Operator, Organisation, StepFailure
from catalog.people.members import rename_organisation
from catalog.registry import default_organisation
from dashboard.pages.kernels.selectors import wins
from opatlas.errors import CallerError
from tests.catalog import making
from tests.tuning.kernels.conftest import PATTERN, SOURCE, approve
from tuning.kernels import binding, selectors
from tuning.kernels.models import Kernel, KernelEvaluation, KernelVersion, VersionState
from tuning.kernels.planning import NO_DEVICE, WAITS, plan_waiting
from tuning.kernels.services import KernelNotAllowed, NotInThatState, may_decide, reject, revoke
from tuning.kernels.states import move
from tuning.models import State
from tuning.queue.rounds import begin_rounds
from tuning.routes.base import Candidate

pytestmark = pytest.mark.django_db
EVERYTHING = selectors.Sight(everything=True)
LAUNCH = {"run": [{"function": "f", "grid": [1, 1, 1], "block": [32, 1, 1], "arguments": [{"output": 0}]}]}
DEVICE_CODE = {"language": "cuda", "source": 'extern "C" __global__ void f(float*) {}', "launch": LAUNCH}


def steps(version: KernelVersion) -> list[tuple[str, str]]:
    return [(line.step, line.who) for line in version.decisions.all()]


def publish_kernel(version: KernelVersion, exploration: Any, ratio: float, folder: Any) -> Implementation:
    """What a worker publishes for an approved version."""
    candidate = binding.submitted_kernel(version).candidate()
    place = {name: getattr(exploration, name) for name in ("operator", "target", "setting")}
    result: Publication = making.new_result(
        place, "cpp", ratio, candidate=dict(candidate.parameters), folder=folder,
        kernel_version=binding.number_of_version(candidate),
    )  # fmt: skip
    return publish(result).implementation


def test_a_submission_is_evaluated_on_the_most_called_operators(explored: Any, submitted: Any) -> None:
    rows = [explored(size, calls) for size, calls in ((16, 1), (24, 9), (32, 5), (40, 7))]
    version = submitted()
    chosen = KernelEvaluation.objects.filter(version=version).values_list("operator", flat=True)
    assert set(chosen) == {rows[1].operator_id, rows[2].operator_id, rows[3].operator_id}
    assert version.state == VersionState.SUBMITTED and steps(version) == [("submitted", "ada")]


def test_one_that_nothing_matches_says_so_and_waits(explored: Any, submitted: Any) -> None:
    explored(64)
    version = submitted(pattern={"op": "Softmax", "inputs": [{"dims": {"-1": 48}}]})
    assert version.state_reason == WAITS and not version.evaluations.exists()
    assert plan_waiting() == 0
    explored(48)
    assert plan_waiting() == 1 and version.evaluations.count() == 1
    assert plan_waiting() == 0


def test_an_example_is_evaluated_though_nobody_explored_it(target_row: Any, submitted: Any) -> None:
    from catalog.registry import register_operator
    from tests.tuning.kernels.conftest import softmax

    row = register_operator(softmax(128))
    assert submitted(example=row.key).evaluations.get().operator == row
    with pytest.raises(Unknown, match="no such operator"):
        submitted(name="other", example="o1:nothing")
    with pytest.raises(RequestError, match="does not match"):
        submitted(name="other", example=row.key, pattern={"op": "Softmax", "inputs": [{"rank": 9}]})


def test_what_no_processor_here_can_run_says_so(explored: Any, submitted: Any) -> None:
    explored(64)
    assert submitted(flags=["-mavx512fp16"]).state_reason == NO_DEVICE
    assert submitted(**DEVICE_CODE, name="of-a-gpu").state_reason == NO_DEVICE


def test_device_code_is_evaluated_on_gpus_only(explored: Any, submitted: Any) -> None:
    from catalog.registry import register_target

    elsewhere, there, gpu = explored(64), explored(32, calls=9), register_target(making.GPU)
    type(there).objects.filter(pk=there.pk).update(target=gpu)
    type(gpu).objects.update(served_until=timezone.now() + timedelta(seconds=60))
    version = submitted(**DEVICE_CODE)
    assert version.evaluations.get().target == gpu
    assert submitted(name="other").evaluations.get().target == elsewhere.target
    candidate = binding.submitted_kernel(version).candidate()
    assert (version.route, candidate.route) == ("cuda", "cuda")
    assert candidate.parameters["launch"] == LAUNCH


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"name": "Has Spaces"}, "name"),
        ({"name": "x"}, "name"),
        ({"source": "int main;"}, "source"),
        ({"source": SOURCE + "\0"}, "source"),
        ({"source": SOURCE + "\udcff"}, "source"),
        ({"licence": ""}, "licence"),
        ({"licence": "my own"}, "licence"),
        ({"author": "  "}, "author"),
        ({"author": "x" * 201}, "author"),
        ({"flags": ["-I/etc"]}, "flags"),
        ({"language": "rust"}, "language"),
        ({"launch": {"run": []}}, "launch"),
        ({"language": "cuda"}, "launch"),
        ({"language": "cuda", "launch": {"run": []}}, "launch"),
        ({"language": "cuda", "launch": {"run": [json.loads("[" * 900 + "]" * 900)]}}, "launch"),
        ({"language": "cuda", "launch": LAUNCH}, "source"),
        ({"language": "cuda", "launch": {"runs": []}}, "launch"),
        ({"language": "cuda", "launch": {"run": ["x" * 40_000]}}, "launch"),
        ({"language": "cuda", "launch": LAUNCH, "flags": ["-O3"]}, "flags"),
        ({"pattern": {}}, "pattern.op"),
        ({"pattern": ["Softmax"]}, "pattern"),
        ({"description": "x" * 501}, "description"),
    ],
)
def test_a_bad_submission_is_one_sentence_and_leaves_nothing(submitted: Any, given: Any, where: str) -> None:
    with pytest.raises(CallerError) as refusal:
        submitted(**given)
    assert refusal.value.where == where and "\n" not in str(refusal.value)
    assert not Kernel.objects.exists()


def test_a_source_may_be_128_kib(submitted: Any) -> None:
    submitted(source=SOURCE + "/" * (128 * 1024 - len(SOURCE)))
    with pytest.raises(TooLarge):
        submitted(name="larger", source=SOURCE + "/" * (128 * 1024 - len(SOURCE) + 1))


def administers(user: Any, organisation: Any = None, role: str = "admin") -> None:
    from catalog.models import Membership

    Membership.objects.create(user=user, organisation=organisation or default_organisation(), role=role)


def test_approvers_of_the_host_decide_and_nobody_elses(awaiting: Any, people: Any) -> None:
    from catalog.models import Organisation

    version = awaiting(by="ada")
    administers(people["dan"], Organisation.objects.create(name="tenant"))
    assert "approver" in may_decide(people["dan"], version)
    administers(people["dan"], role="operator")
    assert "approver" in may_decide(people["dan"], version)
    people["dan"].memberships.filter(role="operator").update(role="approver")
    assert may_decide(people["dan"], version) == ""
    people["dan"].is_active = False
    assert may_decide(people["dan"], version)


def test_unapproved_versions_are_their_organisations_own(awaiting: Any, people: Any) -> None:
    from catalog.models import Organisation
    from tuning.kernels.models import Kernel as KernelRow

    tenant, other = (Organisation.objects.create(name=name) for name in ("tenant", "other"))
    first = awaiting(by="ada")
    KernelRow.objects.update(organisation=tenant)
    outside = selectors.Sight(organisations=frozenset({other.pk}))
    inside = selectors.Sight(organisations=frozenset({tenant.pk}))
    assert not selectors.kernels_seen(outside).exists() and not selectors.versions_seen(outside).exists()
    assert selectors.versions_seen(inside).get() == first
    approve(first, user=people["bob"], reason="fine")
    KernelVersion.objects.create(
        kernel=first.kernel, number=2, source="// secret", source_sha256="0", pattern={}, author="A",
        licence="MIT", state=VersionState.REJECTED, submitted_by=people["ada"],
    )  # fmt: skip
    seen = selectors.kernels_seen(outside).get()
    assert (seen.latest_number, seen.latest_state) == (1, VersionState.APPROVED)
    assert selectors.versions_seen(outside).get() == first
    assert {line.version.number for line in selectors.history_of(first.kernel, outside)} == {1}
    assert selectors.kernels_seen(inside).get().latest_number == 2


def test_who_submitted_any_version_cannot_decide(awaiting: Any, people: Any) -> None:
    awaiting(by="bob")
    administers(people["ada"])  # an administrator edits what another made
    version = awaiting(by="ada", source=SOURCE + "// edited")
    assert "other than" in may_decide(people["bob"], version)
    assert "approver" in may_decide(people["dan"], version)
    assert may_decide(people["carol"], version) == ""
    for name in ("ada", "bob", "dan"):
        with pytest.raises(KernelNotAllowed):
            approve(version, user=people[name], reason="fine")
    assert approve(version, user=people["carol"], reason="fine").state == VersionState.APPROVED
    assert selectors.waiting_for(people["carol"]) == 0


def test_the_database_forbids_approving_ones_own(awaiting: Any, people: Any) -> None:
    version = awaiting()
    with pytest.raises(IntegrityError), transaction.atomic():
        KernelVersion.objects.filter(pk=version.pk).update(
            state=VersionState.APPROVED, decided_by=people["ada"]
        )
    with pytest.raises(IntegrityError), transaction.atomic():
        KernelVersion.objects.create(
            kernel=version.kernel, number=2, source="", pattern={}, submitted_by=people["ada"]
        )


def test_every_decision_needs_a_reason_and_its_state(awaiting: Any, submitted: Any, people: Any) -> None:
    version, bob = awaiting(), people["bob"]
    for reason in ("", "   ", "x" * 501, "a\0b"):
        with pytest.raises(RequestError, match="Say why"):
            approve(version, user=bob, reason=reason)
    with pytest.raises(NotInThatState, match="approved"):
        revoke(version, user=bob, reason="no")
    reject(version, user=bob, reason="too slow")
    with pytest.raises(NotInThatState, match="is rejected"):
        approve(version, user=bob, reason="yes")
    fresh = submitted(name="fresh")
    with pytest.raises(NotInThatState, match="is submitted"):
        approve(fresh, user=bob, reason="yes")
    assert steps(version)[-1] == ("rejected", "bob") and version.state_reason == "too slow"


def test_two_who_decide_at_once_one_of_them_wins(awaiting: Any, people: Any) -> None:
    version = awaiting()
    seen_before = KernelVersion.objects.get(pk=version.pk)
    approve(version, user=people["bob"], reason="fine")
    with pytest.raises(NotInThatState, match="is approved"):
        reject(seen_before, user=people["carol"], reason="slow")
    assert not move(version, (VersionState.AWAITING,), VersionState.FAILED, who="worker")
    assert [step for step, _ in steps(version)] == ["submitted", "approved"]


def test_approval_asks_every_matching_exploration_for_a_round(
    explored: Any, awaiting: Any, people: Any
) -> None:
    ended, waits = explored(64), explored(72, state=State.QUEUED, stage=0)
    other = explored(80)
    version = awaiting(pattern={"op": "Softmax", "inputs": [{"dims": {"-1": {"max": 72}}}]})
    approve(version, user=people["bob"], reason="fine")
    for row in (ended, waits, other):
        row.refresh_from_db()
    assert ended.pending_routes == "cpp" and ended.round_reason == "kernel softmax v1 approved"
    assert waits.pending_routes == "" and other.pending_routes == ""
    assert begin_rounds() == 1
    kernels = list(binding.approved_kernels(ended.operator))
    assert [kernel.label for kernel in kernels] == ["softmax v1"]
    assert list(binding.approved_kernels(other.operator)) == []


def test_revoking_falls_back_to_the_next_best(
    explored: Any, awaiting: Any, people: Any, tmp_path: Any
) -> None:
    """Whatever its organisation is called by then."""
    row, version = explored(64), awaiting()
    place = {name: getattr(row, name) for name in ("operator", "target", "setting")}
    publish(making.new_result(place, "eager", 1.0))
    approve(version, user=people["bob"], reason="fine")
    made = publish_kernel(version, row, 2.0, tmp_path)
    assert Best.objects.get(rank=0).implementation == made
    before = binding.submitted_kernel(version).candidate()
    rename_organisation(version.kernel.organisation, "Another name")
    version = KernelVersion.objects.get(pk=version.pk)
    assert binding.implementations_of(version).get() == made and wins([version.kernel]) == {
        version.kernel_id: 1
    }
    candidate = binding.submitted_kernel(version).candidate()
    assert candidate == before and binding.version_of(candidate) == version
    with transaction.atomic():
        assert binding.why_not_publish(candidate) == ""
    revoke(version, user=people["carol"], reason="reads beyond the end")
    assert Best.objects.get().route == "eager"
    made.refresh_from_db()
    assert made.revoked_at is not None and "reads beyond the end" in made.revoked_reason
    assert "reads beyond the end" in BestChange.objects.latest("pk").reason
    assert version.withdrawn_at is not None
    # Whatever a worker still had in hand cannot come back.
    with transaction.atomic():
        assert binding.why_not_publish(candidate) == "its kernel is revoked"
    publish_kernel(version, row, 3.0, tmp_path)
    assert Best.objects.get().route == "eager"


@pytest.mark.parametrize("renamed", ("before", "after", "twice"))
def test_what_was_bound_by_a_name_is_bound_by_its_number(
    explored: Any, awaiting: Any, people: Any, tmp_path: Any, renamed: str
) -> None:
    """Rows of an earlier release: also where the organisation was renamed under it, and the kernel revoked
    then, which withdrew nothing."""
    row, version = explored(64), awaiting()
    approve(version, user=people["bob"], reason="fine")
    place = {name: getattr(row, name) for name in ("operator", "target", "setting")}
    given = dict(binding.submitted_kernel(version).candidate().parameters)
    number = given.pop("kernel_version")
    named = {**given, "organisation": "default"}
    made = publish(making.new_result(place, "cpp", 2.0, candidate=named, folder=tmp_path)).implementation
    bare = making.new_result(
        place, "cpp", 1.1, candidate={**given, "organisation": ""}, folder=tmp_path, may_lead=False
    )
    brought = publish(bare).implementation
    Implementation.objects.filter(pk__in=(made.pk, brought.pk)).update(method="manual")
    if renamed != "after":
        rename_organisation(version.kernel.organisation, "Another name")
    if renamed == "twice":  # and somebody else took the old name, with a kernel of the same name
        other = Organisation.objects.create(name="default")
        again = Kernel.objects.create(organisation=other, name=version.kernel.name, created_by=people["ada"])
        KernelVersion.objects.create(
            kernel=again, number=1, language="c", source="// other", source_sha256="0" * 64, pattern={},
            author="A", licence="MIT", submitted_by=people["ada"],
        )  # fmt: skip
    import_module("tuning.kernels.migrations.0005_made_by_number").bind(apps, None)
    made.refresh_from_db()
    brought.refresh_from_db()
    assert (made.kernel_version, brought.kernel_version) == (number, None)
    assert binding.version_of(Candidate("cpp", named, "")) == version
    KernelVersion.objects.filter(pk=version.pk).update(state=VersionState.REVOKED)
    assert Best.objects.get().implementation == made
    assert binding.withdraw_unapproved() == 1
    assert Best.objects.get().implementation == brought and binding.withdraw_unapproved() == 0


def test_an_edit_voids_the_approval_at_once(
    explored: Any, awaiting: Any, submitted: Any, people: Any, tmp_path: Any
) -> None:
    row, first = explored(64), awaiting()
    with pytest.raises(NotInThatState, match="Nothing was changed"):
        submitted()
    approve(first, user=people["bob"], reason="fine")
    publish_kernel(first, row, 2.0, tmp_path)
    second = submitted(source=SOURCE + "// faster\n")
    first.refresh_from_db()
    assert (first.state, second.state, second.number) == ("superseded", "submitted", 2)
    assert not Best.objects.exists() and list(binding.approved_kernels(row.operator)) == []
    assert (
        "+// faster" in selectors.source_diff(second, EVERYTHING)
        and selectors.source_diff(first, EVERYTHING) == ""
    )
    lines = [(line.step, line.version.number) for line in selectors.history_of(first.kernel, EVERYTHING)]
    assert lines == [("submitted", 2), ("superseded", 1), ("approved", 1), ("submitted", 1)]


def test_only_who_made_a_kernel_and_administrators_edit_it(
    awaiting: Any, submitted: Any, people: Any
) -> None:
    first = awaiting(by="ada")
    approve(first, user=people["bob"], reason="fine")
    with pytest.raises(KernelNotAllowed, match="another user's kernel"):
        submitted(by="dan", source=SOURCE + "// worse\n")
    first.refresh_from_db()
    assert first.state == VersionState.APPROVED and first.kernel.versions.count() == 1
    administers(people["dan"])
    assert submitted(by="dan", source=SOURCE + "// better\n").number == 2


def test_an_edited_version_is_evaluated_no_further(explored: Any, submitted: Any) -> None:
    from tuning.kernels import claims
    from tuning.queue.held import StaleLease

    row = explored(64)
    submitted()
    held = claims.claim("worker", row.target_id)
    assert held is not None and claims.claim("other", row.target_id) is None
    second = submitted(source=SOURCE + "// edited\n")
    with pytest.raises(StaleLease):
        held.update(doing="timing")
    again = claims.claim("worker", row.target_id)
    assert again is not None and again.load().version == second


def test_a_silent_workers_evaluation_is_claimed_again(explored: Any, submitted: Any) -> None:
    from tuning.kernels import claims
    from tuning.queue.clock import now_in

    row = explored(64)
    submitted()
    first = claims.claim("silent", row.target_id)
    assert first is not None and claims.claim("other", row.target_id) is None
    first.update(lease_expires_at=now_in(-1))
    second = claims.claim("other", row.target_id)
    assert second is not None and second.fence == first.fence + 1 and not first.row().exists()


def test_examples_ship_are_submitted_once_and_approved_by_another(
    explored: Any, people: Any, target_row: Any
) -> None:
    from tuning.kernels.services import approve_all, submit_examples

    row = explored()
    versions = submit_examples(people["ada"], default_organisation())
    assert {"softmax-avx2", "layer-norm-avx2", "depthwise-avx2", "small-gemm-avx2"} <= {
        version.kernel.name for version in versions
    }
    assert [one.pk for one in submit_examples(people["ada"])] == [one.pk for one in versions]
    for version in versions:  # as a worker would leave them
        place = {name: getattr(row, name) for name in ("operator", "target", "setting")}
        KernelEvaluation.objects.filter(version=version).delete()
        KernelEvaluation.objects.create(version=version, state="done", status="ok", **place)
    KernelVersion.objects.update(state=VersionState.AWAITING)
    assert approve_all(people["ada"], "mine") == []
    assert len(approve_all(people["bob"], "reviewed")) == len(versions)


def test_patterns_of_the_shipped_kernels_match_real_operators() -> None:
    from opatlas.identity import parse_operator
    from tuning.kernels.shipped import examples
    from tuning.routes.manual.matching import parse_pattern

    attention = parse_operator({"op": "Softmax", "inputs": [{"shape": [32, 128, 128], "dtype": "float32"}]})
    names = [one.name for one in examples(["cpu"]) if not parse_pattern(one.pattern).refuses(attention)]
    assert names == ["softmax-avx2", "softmax-avx512"]
    assert PATTERN["op"] == "Softmax"


def test_a_silent_evaluation_that_cannot_be_claimed_leaves_the_next_its_turn(
    explored: Any, submitted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning.kernels import claims
    from tuning.queue.clock import now_in

    row = explored(64)
    submitted()
    first = claims.claim("silent", row.target_id)
    assert first is not None
    first.update(lease_expires_at=now_in(-1))
    submitted(by="carol", name="another")
    monkeypatch.setattr(claims, "_keep_silent", lambda row: 1 / 0)
    second = claims.claim("other", row.target_id)
    assert second is not None and second.pk != first.pk
    assert StepFailure.objects.get().row == first.pk and StepFailure.objects.get().step == claims.CLAIMING


def test_an_operator_that_cannot_be_read_keeps_no_version_from_being_planned(
    explored: Any, submitted: Any
) -> None:
    bad, good = explored(65, calls=9), explored(64)
    Operator.objects.filter(pk=bad.operator_id).update(graph={"opset": 99})
    version = submitted()
    assert [one.operator_id for one in version.evaluations.all()] == [good.operator_id]
