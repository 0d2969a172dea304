"""Hand-written kernels on pages: submit, edit, read the evidence, decide; and who may do what."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from catalog import models as c
from catalog.models import Organisation, Role
from catalog.people.own_keys import scopes_within
from catalog.registry import default_organisation
from catalog.viewing import MAY
from tests.dashboard.factory import Factory
from tests.dashboard.kernels import FASTER, SOURCE, approve, evaluated, gallery, person, submitted
from tests.dashboard.people import member_client
from tests.databases import ROOT
from tuning.kernels import services
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import Kernel, KernelDecision, KernelEvaluation, KernelVersion

FILLED = {
    "name": "softmax-rows",
    "language": "c",
    "source": SOURCE,
    "operators": "Softmax",
    "constraints": '{"inputs": [{"dtype": "float32"}]}',
    "flags": "-O3 -mavx2",
    "author": "Ada Example",
    "licence": "MIT",
    "description": "A row at a time.",
    "example": "",
}


@pytest.fixture
def ada(db: None) -> User:
    return person("ada")


@pytest.fixture
def grace(db: None) -> User:
    return person("grace", decides=True)


def browser(user: User, **options: bool) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


@pytest.fixture
def awaiting(ada: User, catalogue: Factory) -> KernelVersion:
    operators = list(c.Operator.objects.filter(op_type="Softmax")[:2])
    return evaluated(submitted(ada), operators, catalogue)


def path_of(version: KernelVersion, verb: str = "") -> str:
    return f"/kernels/{version.kernel_id}/v{version.number}/" + (f"{verb}/" if verb else "")


def test_every_page_of_kernels_answers(pages: Client, catalogue: Factory) -> None:
    version = gallery(catalogue)
    paths = ["/kernels/", "/kernels/submit/", f"/kernels/{version.kernel_id}/edit/"]
    paths += [path_of(one) for one in KernelVersion.objects.all()]
    paths += [path_of(one, "standing") for one in KernelVersion.objects.all()]
    for path in paths:
        assert pages.get(path).status_code == 200, path
        assert Client().get(path).headers["Location"].startswith("/login/?next="), path
    assert pages.get(f"/kernels/{version.kernel_id}/").headers["Location"] == path_of(version)


@pytest.mark.parametrize("path", ["", "standing/"])
def test_a_number_beyond_64_bits_is_no_kernels(pages: Client, path: str) -> None:
    for address in (f"{1 << 64}/v1", f"1/v{1 << 64}"):
        assert pages.get(f"/kernels/{address}/{path}").status_code == 404


def test_list_says_state_author_licence_and_wins(ada: User, grace: User, awaiting: KernelVersion) -> None:
    approve(awaiting, user=grace, reason="fast")
    html = browser(ada).get("/kernels/").content.decode()
    for text in ("softmax-rows", "approved", "Ada Example", "MIT", "Wins"):
        assert text in html


def test_submitting_makes_a_version_and_shows_it(ada: User) -> None:
    answer = browser(ada).post("/kernels/submit/", FILLED)
    version = KernelVersion.objects.get()
    assert answer.headers["Location"] == path_of(version)
    assert version.pattern == {"op": "Softmax", "inputs": [{"dtype": "float32"}]}
    assert version.flags == ["-O3", "-mavx2"] and version.source == SOURCE and version.submitted_by == ada
    html = browser(ada).get(path_of(version)).content.decode()
    assert "submitted" in html and 'hx-trigger="every 2s"' in html


def test_device_code_is_submitted_with_its_launch_and_shown_with_it(ada: User) -> None:
    launch = {"run": [{"function": "f", "grid": ["IN0_SIZE", 1, 1], "block": [1, 1, 1], "arguments": []}]}
    given = {
        **FILLED,
        "language": "cuda",
        "flags": "--use_fast_math",
        "source": 'extern "C" __global__ void f() {}',
        "launch": json.dumps(launch),
    }
    client = browser(ada)
    assert client.post("/kernels/submit/", given).status_code == 302
    version = KernelVersion.objects.get()
    assert (version.language, version.launch) == ("cuda", launch)
    page = client.get(f"/kernels/{version.kernel_id}/", follow=True).content.decode()
    assert "what runs on which grids" in page and "IN0_SIZE" in page and "CUDA C++" in page
    edit = client.get(f"/kernels/{version.kernel_id}/edit/")
    assert json.loads(edit.context["form"]["launch"].value()) == launch


def test_browsers_line_ends_are_not_kept(ada: User) -> None:
    browser(ada).post("/kernels/submit/", {**FILLED, "source": SOURCE.replace("\n", "\r\n")})
    assert KernelVersion.objects.get().source == SOURCE


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"flags": "-O3 -fplugin=evil.so"}, "-fplugin=evil.so"),
        ({"licence": "whatever"}, "is no SPDX licence"),
        ({"constraints": "{not json"}, "This is not JSON"),
        ({"constraints": "[]"}, "Constraints are one JSON object"),
        ({"constraints": '{"sizes": 3}'}, "sizes"),
        ({"operators": " , "}, "at least one operator type"),
        ({"name": "Softmax!"}, "a letter or digit first"),
        ({"source": "int main(void) { return 0; }"}, "must define opatlas_run"),
        ({"example": "o1:nothing"}, "no such operator"),
        ({"author": ""}, "This field is required"),
        ({"launch": "[1]"}, "A launch is one JSON object"),
        ({"constraints": "[" * 100_000}, "nested too deeply"),
        ({"launch": '{"run": [{}]}'}, "Only a kernel in cuda has a launch template"),
        ({"language": "cuda", "flags": ""}, "launch is an object with 'run', a list of launches"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_typed_is_lost(wrong: dict, sentence: str, ada: User) -> None:
    given = {**FILLED, **wrong}
    answer = browser(ada).post("/kernels/submit/", given)
    assert answer.status_code == 400 and not Kernel.objects.exists()
    html = answer.content.decode()
    assert sentence in html.replace("&#x27;", "'").replace("&quot;", '"')
    assert "Nothing was submitted" in html
    form = answer.context["form"]
    assert {name: form[name].value() for name in given} == given


def test_a_taken_name_is_not_an_edit_by_accident(ada: User, awaiting: KernelVersion) -> None:
    answer = browser(person("mallory")).post("/kernels/submit/", FILLED)
    assert answer.status_code == 400 and "There is a kernel of this name" in answer.content.decode()
    assert KernelVersion.objects.count() == 1


def test_evidence_is_on_one_page(ada: User, grace: User, awaiting: KernelVersion, catalogue: Factory) -> None:
    services.reject(awaiting, user=grace, reason="Divides in the inner loop.")
    operators = list(c.Operator.objects.filter(op_type="Softmax")[:2])
    second = evaluated(submitted(ada, source=FASTER), operators, catalogue)
    html = browser(grace).get(path_of(second)).content.decode()
    for text in (
        *("inverse", 'class="gi"', 'class="gd"'),  # the difference, highlighted
        *("loop vectorized", "2.4e-07", "of 1.0e-04"),  # the build log, the error and what is allowed
        *(
            "packed weights",
            "best so far",
            "default (PyTorch eager)",
            "vectors of 8",
            "this kernel",
        ),  # every other method
        *(operators[0].summary, "Divides in the inner loop.", "Ada Example", "-mavx2"),
    ):
        assert text in html, text
    assert html.count('class="chart waiting"') == 2


def test_approving_takes_permission_a_reason_and_another_person(
    ada: User, grace: User, awaiting: KernelVersion
) -> None:
    ticked = [f"{piece}:{digest}" for piece, digest in Dossier(awaiting).digests.items()]
    reason = {"reason": "Checked by hand.", "looked_at": ticked}
    assert browser(ada).post(path_of(awaiting, "approve"), reason).status_code == 403
    assert browser(person("reader")).post(path_of(awaiting, "approve"), reason).status_code == 403
    ada_decides = person("ada", decides=True)
    refused = browser(ada_decides).post(path_of(awaiting, "approve"), reason)
    assert refused.status_code == 403 and "Somebody other than" in refused.content.decode()
    blank = browser(grace).post(path_of(awaiting, "approve"), {**reason, "reason": "  "})
    assert blank.status_code == 400 and "Say why" in blank.content.decode()
    awaiting.refresh_from_db()
    assert awaiting.state == "awaiting"
    done = browser(grace).post(path_of(awaiting, "approve"), reason)
    assert done.headers["Location"] == path_of(awaiting)
    awaiting.refresh_from_db()
    assert awaiting.state == "approved" and awaiting.decided_by == grace
    assert KernelDecision.objects.filter(step="approved", user=grace, reason="Checked by hand.").exists()


def test_an_approver_is_shown_what_matters_and_names_it(
    ada: User, grace: User, awaiting: KernelVersion
) -> None:
    html = browser(grace).get(path_of(awaiting)).content.decode()
    for text in (
        *("opens files: &#x27;/etc/hostname&#x27;", "look closely", "reads the processor&#x27;s clock"),
        *("8 of 8 rounds were disturbed", "openat 8×", "clock_gettime", "local function at 0x1150", "rdtsc"),
        *("Debian GNU/Linux 12", "12.2.0", "default/softmax-rows v1"),
    ):
        assert text in html, text
    digests = Dossier(awaiting).digests
    only = [f"source:{digests['source']}"]
    refused = browser(grace).post(path_of(awaiting, "approve"), {"reason": "ok", "looked_at": only})
    html = refused.content.decode()
    assert refused.status_code == 400 and "risks is missing" in html
    assert f'value="{only[0]}" checked' in html and html.count(" checked>") == 1, "what was ticked stays"
    stale = [*only, f"risks:{'0' * 64}"]
    refused = browser(grace).post(path_of(awaiting, "approve"), {"reason": "ok", "looked_at": stale})
    assert refused.status_code == 409 and "The evidence changed since" in refused.content.decode()
    assert refused.content.decode().count(" checked>") == 1, "what changed is ticked no more"
    seen = [f"{piece}:{digests[piece]}" for piece in ("source", "risks", "machine_code")]
    browser(grace).post(path_of(awaiting, "approve"), {"reason": "ok", "looked_at": seen})
    html = browser(ada).get(path_of(awaiting)).content.decode()
    assert "looked at:" in html and "machine code" in html


def test_its_submitter_asks_for_another_evaluation(ada: User, awaiting: KernelVersion) -> None:
    KernelVersion.objects.filter(pk=awaiting.pk).update(state="noisy", state_reason="too noisy")
    awaiting.evaluations.update(status="noisy")
    again = path_of(awaiting, "evaluate")
    assert again in browser(ada).get(path_of(awaiting)).content.decode()
    assert again not in browser(person("reader")).get(path_of(awaiting)).content.decode()
    assert browser(person("reader")).post(again).status_code == 403
    assert browser(ada).post(again).headers["Location"] == path_of(awaiting)
    awaiting.refresh_from_db()
    assert awaiting.state == "submitted"


def test_only_who_may_decide_is_shown_the_form(ada: User, grace: User, awaiting: KernelVersion) -> None:
    approve = f'action="{path_of(awaiting, "approve")}"'
    assert approve in browser(grace).get(path_of(awaiting)).content.decode()
    for user in (ada, person("ada", decides=True), person("reader")):
        assert approve not in browser(user).get(path_of(awaiting)).content.decode()


def test_rejecting_and_revoking(ada: User, grace: User, awaiting: KernelVersion) -> None:
    deciding = browser(grace)
    early = deciding.post(path_of(awaiting, "revoke"), {"reason": "too early"})
    assert early.status_code == 409 and "can be revoked" in early.content.decode()
    assert "too early" in early.content.decode()  # the reason is not lost
    approve(awaiting, user=grace, reason="fast")
    deciding.post(path_of(awaiting, "revoke"), {"reason": "Reads beyond its input."})
    awaiting.refresh_from_db()
    assert awaiting.state == "revoked"
    assert "Reads beyond its input." in browser(ada).get(path_of(awaiting)).content.decode()
    again = evaluated(submitted(ada, source=FASTER), [], Factory())
    deciding.post(path_of(again, "reject"), {"reason": "No evidence."})
    again.refresh_from_db()
    assert again.state == "rejected"


def test_editing_voids_the_approval(ada: User, grace: User, awaiting: KernelVersion) -> None:
    approve(awaiting, user=grace, reason="fast")
    path = f"/kernels/{awaiting.kernel_id}/edit/"
    form = browser(ada).get(path)
    assert "voids that at once" in form.content.decode()
    assert form.context["form"]["source"].value() == SOURCE
    answer = browser(ada).post(path, {**FILLED, "name": "another", "source": FASTER})
    second = KernelVersion.objects.get(number=2)
    assert answer.headers["Location"] == path_of(second) and second.kernel == awaiting.kernel
    awaiting.refresh_from_db()
    assert awaiting.state == "superseded"
    same = browser(ada).post(path, {**FILLED, "source": FASTER, "description": ""})
    assert same.status_code == 400 and "Nothing was changed" in same.content.decode()


def test_only_who_made_it_edits_it(ada: User, awaiting: KernelVersion, administrator: User) -> None:
    path = f"/kernels/{awaiting.kernel_id}/edit/"
    assert browser(person("mallory")).get(path).status_code == 403
    assert browser(person("mallory")).post(path, {**FILLED, "source": FASTER}).status_code == 403
    assert browser(administrator).get(path).status_code == 200


def test_another_organisations_kernel_is_seen_once_it_is_approved(
    ada: User, grace: User, catalogue: Factory
) -> None:
    other = c.Organisation.objects.create(name="other")
    version = submitted(ada)
    Kernel.objects.filter(pk=version.kernel_id).update(organisation=other)
    reader = browser(User.objects.create_user("reader"))  # belongs to no organisation
    for path in (path_of(version), f"/kernels/{version.kernel_id}/", path_of(version, "standing")):
        assert reader.get(path).status_code == 404, path
    assert "softmax-rows" not in reader.get("/kernels/").content.decode()
    assert browser(ada).get(path_of(version)).status_code == 200
    assert browser(grace).get(path_of(version)).status_code == 200
    version.refresh_from_db()
    evaluated(version, list(c.Operator.objects.filter(op_type="Softmax")[:1]), catalogue)
    approve(version, user=grace, reason="fast")
    assert reader.get(path_of(version)).status_code == 200


def test_evidence_stands_before_the_decision(ada: User, grace: User, awaiting: KernelVersion) -> None:
    html = browser(grace).get(path_of(awaiting)).content.decode()
    places = [
        html.index(f'id="{name}"')
        for name in ("risks-title", "evaluations-title", "source-title", "decision")
    ]
    assert places == sorted(places) and "<details open>" not in html
    again = browser(grace).post(path_of(awaiting, "approve"), {"reason": ""}).content.decode()
    assert "<details open>" in again[again.index('id="decision"') :]  # what was refused is seen at once
    own = browser(ada).get(path_of(awaiting)).content.decode()
    assert "Approve</button>" not in own and own.index('id="source-title"') < own.index('id="decision"')


def test_decisions_need_the_forms_token(grace: User, awaiting: KernelVersion) -> None:
    strict = browser(grace, enforce_csrf_checks=True)
    assert strict.post(path_of(awaiting, "approve"), {"reason": "x"}).status_code == 403
    assert strict.post("/kernels/submit/", FILLED).status_code == 403
    awaiting.refresh_from_db()
    assert awaiting.state == "awaiting"


def test_nothing_is_decided_by_a_link(grace: User, awaiting: KernelVersion) -> None:
    assert browser(grace).get(path_of(awaiting, "approve")).status_code == 405
    assert browser(grace).post(path_of(awaiting, "bless"), {"reason": "x"}).status_code == 404


def test_progress_is_sent_only_when_it_changed(ada: User) -> None:
    version = submitted(ada)
    client = browser(ada)
    first = client.get(path_of(version), headers={"HX-Request": "true"})
    assert first.status_code == 200 and b"<html" not in first.content
    seen = first.content.decode().split('"seen": "')[1].split('"')[0]
    again = client.get(path_of(version), {"seen": seen}, headers={"HX-Request": "true"})
    assert again.status_code == 204
    evaluated(version, [], Factory())
    moved = client.get(path_of(version), {"seen": seen}, headers={"HX-Request": "true"})
    assert moved.status_code == 200 and b"every 2s" not in moved.content


def test_what_was_typed_is_text_on_pages(ada: User) -> None:
    evil = "<script>alert(1)</script>"
    version = submitted(ada, author=evil, description=evil, source=SOURCE + f"// {evil}\n")
    for path in ("/kernels/", path_of(version), f"/kernels/{version.kernel_id}/edit/"):
        assert evil not in browser(ada).get(path).content.decode(), path


def test_an_empty_list_says_how_to_begin(ada: User) -> None:
    default_organisation()
    assert "No kernel was submitted yet" in browser(ada).get("/kernels/").content.decode()


def test_who_may_submit_is_the_same_by_page_search_and_key_and_in_the_documentation(db: None) -> None:
    tenant = Organisation.objects.create(name="Tenant")
    told = (ROOT / "docs" / "kernels.md").read_text().partition("submit kernels")[0]
    for role in Role:
        client = member_client(tenant, role)
        allowed = "kernels" in scopes_within(MAY[role])
        assert client.get("/kernels/submit/").status_code == (200 if allowed else 403), role
        for path in ("/kernels/", "/find/?q=submit"):
            assert ("/kernels/submit/" in client.get(path).content.decode()) == allowed, (role, path)
        assert ({Role.ADMIN: "administrators"}.get(role, f"{role}s") in told) == allowed, role


def test_an_empty_form_is_refused_field_by_field(ada: User) -> None:
    answer = browser(ada).post("/kernels/submit/")
    assert answer.status_code == 400 and {"name", "source", "licence"} <= set(answer.context["form"].errors)


def test_everything_that_is_wrong_is_said_at_once(ada: User) -> None:
    wrong = {
        "name": "Softmax!", "source": "int main(void) { return 0; }", "licence": "my own", "author": "",
        "flags": "-fplugin=evil.so", "constraints": "{", "launch": '{"run": [{}]}',
    }  # fmt: skip
    errors = browser(ada).post("/kernels/submit/", {**FILLED, **wrong}).context["form"].errors
    assert set(errors) == set(wrong)
    assert all(len(said) == 1 for said in errors.values())


def test_overlapping_intervals_are_not_called_faster(awaiting: KernelVersion, grace: User) -> None:
    first = awaiting.evaluations.order_by("pk")[0]
    raced = {"incumbent_route": "onednn", "incumbent_low": 1.9, "incumbent_high": 2.2}
    own = {"ratio_to_default": 2.1, "ratio_low": 1.95, "ratio_high": 2.25, "status": "ok"}
    KernelEvaluation.objects.filter(pk=first.pk).update(**own, **raced, incumbent_ratio=2.0)
    html = browser(grace).get(path_of(awaiting)).content.decode()
    told = browser(grace).get(path_of(awaiting)).context
    assert told["against"][first.pk].verdict == "same" and "no significant difference" in html
    ahead = {**own, "ratio_to_default": 4.0, "ratio_low": 3.9, "ratio_high": 4.1}
    KernelEvaluation.objects.filter(pk=first.pk).update(**ahead)
    assert "this kernel is faster by 2.00×" in browser(grace).get(path_of(awaiting)).content.decode()
