"""A cheat once caught stays caught: over tries, versions, names, contests, and by the database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, transaction

from catalog.models import Best, Implementation, Organisation
from tests.tuning.kernels.conftest import SOURCE, approve
from tests.tuning.kernels.test_evaluating import fresh, source, worker  # noqa: F401 - a fixture
from tuning.kernels import claims, services
from tuning.kernels.caught import CaughtBefore, caught_cheating
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import (
    CaughtSource,
    KernelDecision,
    KernelEvaluation,
    KernelTry,
    KernelVersion,
    VersionState,
)
from tuning.kernels.states import KernelNotAllowed, NotInThatState
from tuning.models import State
from tuning.queue.clock import now_in

pytestmark = pytest.mark.django_db(transaction=True)


def states() -> dict[str, str]:
    return {version.label: version.state for version in KernelVersion.objects.select_related("kernel")}


def tries(version: KernelVersion) -> list[tuple[int, str]]:
    return [(one.number, one.status) for one in version.tries.order_by("pk")]


def test_a_cheat_ends_the_version_and_its_source_is_refused_for_good(
    worker: Any,  # noqa: F811
    explored: Any,
    submitted: Any,
    people: Any,
) -> None:
    explored(64), explored(72)
    cheat = source(behave="cheated")
    version = submitted(source=cheat)
    worker.run_until_idle()
    assert fresh(version).state == "failed" and "cheated in its evaluation" in fresh(version).state_reason
    assert tries(version) == [(1, "cheated")], "no second operator is tried"
    again = "caught cheating on .* UTC \\(right when checked, wrong when timed\\): it is refused for good"
    other = Organisation.objects.create(name="other")
    for text in (cheat, "// new\n" + cheat.replace("{ return 0; }", "{return 0;}")):
        for name, owner in (("softmax", None), ("another", None), ("softmax", other)):
            with pytest.raises(CaughtBefore, match=again) as refused:
                _submit(name, text, people["dan"] if owner else people["ada"], owner)
            assert refused.value.status == 409 and "softmax" not in str(refused.value), "it names nobody"


def _submit(name: str, text: str, user: Any, owner: Organisation | None) -> KernelVersion:
    from catalog.registry import default_organisation
    from tests.tuning.kernels.conftest import PATTERN

    given = services.Submission(name=name, source=text, pattern=PATTERN, author="X", licence="MIT")
    return services.submit(given, user=user, organisation=owner or default_organisation())


def test_every_version_with_that_source_ends_and_the_approved_one_is_suspended(
    worker: Any,  # noqa: F811
    explored: Any,
    awaiting: Any,
    submitted: Any,
    people: Any,
) -> None:
    explored(64, state=State.QUEUED, stage=0)
    cheat = source(ratio=3.0)
    served = awaiting(source=cheat, name="served")
    approve(served, user=people["bob"], reason="fine")
    worker.run_until_idle()
    assert Best.objects.get(rank=0).route == "cpp"
    waits = awaiting(source=cheat + "// other words\n", name="waits")
    queued = submitted(source=cheat + "/* still others */", name="queued")
    honest = awaiting(source=SOURCE.replace("return 0", "return 1"), name="honest")
    caught_cheating(waits, where="evaluation on Softmax", detail="stale outputs", worker="w")
    assert states() == {
        "served v1": "suspended", "waits v1": "failed", "queued v1": "failed", "honest v1": "awaiting",
    }  # fmt: skip
    assert Best.objects.get(rank=0).route == "onednn", "withdrawn from serving at once"
    made = Implementation.objects.get(route="cpp")
    assert made.revoked_at is not None and "caught cheating" in made.revoked_reason
    assert claims.claim("w", KernelEvaluation.objects.filter(version=queued).first().target_id) is None
    with pytest.raises(NotInThatState, match="is suspended"):
        approve(served, user=people["carol"], reason="again")
    services.revoke(fresh(served), user=people["carol"], reason="for the record")
    assert fresh(served).state == "revoked" and fresh(honest).state == "awaiting"


def test_an_approved_kernel_that_a_contest_catches_is_suspended_everywhere(
    worker: Any,  # noqa: F811
    explored: Any,
    awaiting: Any,
    people: Any,
    monkeypatch: Any,
) -> None:
    from tests.tuning import fakes
    from tuning.measure.outcome import Outcome, Status

    explored(64, state=State.QUEUED, stage=0)
    version = awaiting(source=source(ratio=3.0))
    approve(version, user=people["bob"], reason="fine")
    worker.run_until_idle()
    assert Best.objects.get(rank=0).route == "cpp"
    measure = fakes.FakeBench.measure

    def caught(bench: Any, artifact: Any, *rest: Any) -> Any:
        if artifact.manifest.route == "cpp":
            return Outcome(Status.CHEATED, "faster than memory is, see /srv/opatlas/a.so")
        return measure(bench, artifact, *rest)

    monkeypatch.setattr(fakes.FakeBench, "measure", caught)
    explored(72, state=State.QUEUED, stage=0)  # another operator: the first one's best falls, too
    worker.run_until_idle()
    assert fresh(version).state == "suspended"
    assert "cheated in its contest on Softmax" in fresh(version).state_reason
    assert not Best.objects.filter(route="cpp").exists()
    found = CaughtSource.objects.get()
    assert found.where.startswith("contest on Softmax") and found.detail.endswith("see a.so")
    assert "/srv" not in fresh(version).state_reason


def test_a_caught_version_cannot_be_laundered_by_another_evaluation(
    worker: Any,  # noqa: F811
    explored: Any,
    submitted: Any,
    people: Any,
) -> None:
    """The padding cheat: caught once, it was noisy on the next try, and could be approved."""
    explored(64)
    version = submitted(source=source(behave="cheated"))
    worker.run_until_idle()
    with pytest.raises((NotInThatState, CaughtBefore)):
        services.evaluate_again(fresh(version), user=people["ada"])
    # Whatever rows say afterwards: the database looks at every try.
    KernelEvaluation.objects.filter(version=version).update(state="done", status="ok")
    KernelVersion.objects.filter(pk=version.pk).update(state=VersionState.AWAITING)
    with pytest.raises(NotInThatState, match="caught cheating"):
        approve(fresh(version), user=people["bob"], reason="fine")
    CaughtSource.objects.all().delete()
    with pytest.raises(NotInThatState, match="It was cheated on an operator"):
        approve(fresh(version), user=people["bob"], reason="fine")
    assert not _approved_by_a_slip(version, people["bob"])


@pytest.mark.parametrize("status", ["noisy", "cheated", "wrong_result", "unsupported", "", "slower"])
def test_the_database_approves_no_other_evidence(awaiting: Any, people: Any, status: str) -> None:
    version = awaiting()
    KernelEvaluation.objects.filter(version=version).update(status=status)
    assert not _approved_by_a_slip(version, people["bob"])
    KernelEvaluation.objects.filter(version=version).update(status="ok", state="dead")
    assert not _approved_by_a_slip(version, people["bob"])
    KernelEvaluation.objects.filter(version=version).update(state="done")
    assert _approved_by_a_slip(version, people["bob"])


def _approved_by_a_slip(version: KernelVersion, user: Any) -> bool:
    """An update that nobody asked for permission."""
    rows = KernelVersion.objects.filter(pk=version.pk)
    try:
        with transaction.atomic():
            rows.update(state=VersionState.APPROVED, decided_by=user)
    except DatabaseError as refused:
        assert "every evaluation ended ok or slower" in str(refused)
    return fresh(version).state == "approved"


def test_tries_decisions_and_caught_sources_are_only_added_to(awaiting: Any, people: Any) -> None:
    version = awaiting()
    evaluation = version.evaluations.get()
    claims.keep_try(evaluation, 1, status="cheated", detail="stale outputs")
    caught_cheating(version, where="evaluation on Softmax", detail="stale outputs", worker="w")
    for rows, column in (
        (KernelTry.objects, "status"), (KernelDecision.objects, "reason"), (CaughtSource.objects, "detail"),
        (CaughtSource.objects, "source_sha256"),
    ):  # fmt: skip
        with pytest.raises(DatabaseError, match="only ever added to"), transaction.atomic():
            rows.update(**{column: "ok"})
    version.kernel.delete()
    assert CaughtSource.objects.get().version is None, "it outlives the kernel"
    with pytest.raises(CaughtBefore):
        _submit("new", version.source, people["ada"], None)


def test_every_try_is_kept_and_shown(
    worker: Any,  # noqa: F811
    explored: Any,
    submitted: Any,
    people: Any,
) -> None:
    row = explored(64)
    version = submitted(source=source(behave="noisy"))
    held = claims.claim("silent", row.target_id)
    assert held is not None
    held.update(lease_expires_at=now_in(-1))
    worker.run_until_idle()
    assert fresh(version).state == "noisy"
    assert tries(version) == [(1, "died"), (2, "noisy"), (3, "noisy")]
    with pytest.raises(KernelNotAllowed):
        services.evaluate_again(fresh(version), user=people["dan"])
    services.evaluate_again(fresh(version), user=people["ada"])
    assert fresh(version).state == "submitted"
    worker.run_until_idle()
    assert [status for _, status in tries(version)] == ["died", *["noisy"] * 5]
    said = [risk.text for risk in Dossier(fresh(version)).risks]
    assert any("try 6 on Softmax" in text and "ended noisy" in text for text in said)
    services.evaluate_again(fresh(version), user=people["ada"])
    worker.run_until_idle()
    services.evaluate_again(fresh(version), user=people["ada"])
    worker.run_until_idle()
    with pytest.raises(NotInThatState, match="tried 12 times"):
        services.evaluate_again(fresh(version), user=people["ada"])


@pytest.mark.parametrize("how", ["build_killed", "build_failed"])
def test_a_build_that_is_killed_is_not_tried_on_the_next_operator(
    worker: Any,  # noqa: F811
    explored: Any,
    submitted: Any,
    how: str,
) -> None:
    for size in (64, 72, 80):
        explored(size)
    version = submitted(source=source(behave=how))
    assert version.evaluations.count() == 3
    worker.run_until_idle()
    assert len(tries(version)) == 1 and fresh(version).state == "failed"
    assert sorted(version.evaluations.values_list("state", flat=True)) == ["dead", "dead", "done"]
    assert "took longer" in fresh(version).state_reason or "does not compile" in fresh(version).state_reason


def test_a_later_version_shows_what_an_earlier_one_was_caught_for(awaiting: Any, submitted: Any) -> None:
    first = awaiting()
    caught_cheating(first, where="evaluation on Softmax", detail="stale outputs", worker="w")
    second = submitted(source=SOURCE.replace("return 0", "return 1"))
    other = submitted(name="other", source=SOURCE.replace("return 0", "return 2"))
    for version, who in ((second, "version 1 of this kernel"), (other, "another kernel of its submitter")):
        (line, *_) = Dossier(version).risks
        assert line.severity == "grave" and line.text.startswith(f"{who} was caught cheating on ")


def test_an_approval_names_what_was_looked_at(awaiting: Any, people: Any) -> None:
    version, bob = awaiting(), people["bob"]
    shown = Dossier(version).digests

    def refused(looked_at: Any) -> Any:
        from opatlas.errors import CallerError

        with pytest.raises(CallerError) as error:
            services.approve(version, user=bob, reason="fine", looked_at=looked_at)
        return getattr(error.value, "status", 400), str(error.value)

    for looked_at in (
        None,
        {},
        {"source": shown["source"]},
        {"risks": shown["risks"]},
        {**shown, "risks": ""},
    ):
        status, said = refused(looked_at)
        assert status == 400 and "at least the source and the risk lines" in said
    assert refused({**shown, "weather": "fine"})[0] == 400
    assert refused({**shown, "source": "0" * 64}) == (
        409, "The evidence changed since it was shown (source): look at it again.",
    )  # fmt: skip
    claims.keep_try(version.evaluations.get(), 7, status="ok")
    assert refused(shown)[0] == 409, "a try came after it was shown"
    pieces = Dossier(fresh(version)).digests
    seen = {name: pieces[name] for name in ("risks", "source")}
    services.approve(version, user=bob, reason="fine", looked_at=seen)
    assert KernelDecision.objects.get(step="approved").looked_at == seen
