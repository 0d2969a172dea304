"""One operator's page: methods side by side, trials, code, history, worth, permalinks, exports, rights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from catalog import models as c
from catalog.charging import Charging, Terms
from catalog.registry import register_target
from dashboard.pages.operators import code
from opatlas.identity import Setting, Target
from tests.dashboard.factory import Factory, on_a_gpu
from tests.dashboard.people import member_client
from tuning import models as t
from tuning.statistics import benefit


@pytest.fixture
def explored(catalogue: Factory) -> c.Operator:
    """One with an ended exploration, several methods, trials of every end."""
    benefit.forget()
    row = t.Exploration.objects.filter(state="done", stage=2).order_by("pk").last()
    assert row is not None
    return row.operator


@pytest.fixture
def member(catalogue: Factory) -> Callable[[str], Client]:
    """``member(role)``: somebody of another organisation than the catalogue's."""

    def make(role: str) -> Client:
        other, _ = c.Organisation.objects.get_or_create(name="another")
        return member_client(other, role)

    return make


def text(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def rows_of(client: Client, path: str, table: str) -> list[dict[str, Any]]:
    glue = "&" if "?" in path else "?"
    return json.loads(client.get(f"{path}{glue}export=json&table={table}").content)["rows"]


def test_each_method_is_compared_with_the_best_in_words(pages: Client, explored: c.Operator) -> None:
    path = f"/operators/{explored.key}/"
    html = text(pages, path)
    assert "Methods side by side" not in html and html.count('id="table-implementations"') == 1
    assert 'class="chip">best library</span>' in html and 'class="chip">best compiler</span>' in html
    rows = rows_of(pages, path, "methods")
    assert rows[0]["verdict"] == "The fastest known."
    assert {row["method"] for row in rows} >= {"library", "compiler"}
    for row in rows[1:]:
        said = row["verdict"]
        assert re.search(r"faster than .* by \d.*× \(.* – .*×\), 7 and 7 samples, confidence", said) or (
            said.startswith("No significant difference between")
        )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("at=0-0", "There is no place “0-0” of this operator."),
        ("race=0", "There is no race “0” of this operator here."),
        ("implementation=0", "There is no implementation “0” of this operator here."),
        ("status=good", "There is no status “good”: it is one of"),
        ("route=tvmm", "There is no route “tvmm”: it is one of"),
    ],
)
def test_what_its_address_asks_for_in_vain_is_said(
    pages: Client, explored: c.Operator, asked: str, said: str
) -> None:
    assert said in text(pages, f"/operators/{explored.key}/?{asked}")
    assert said not in text(pages, f"/operators/{explored.key}/")


def test_it_opens_with_how_to_use_it_there(pages: Client, explored: c.Operator) -> None:
    best = c.Best.objects.filter(operator=explored, rank=0).select_related("target", "setting").get()
    said = Setting(threads=3, cache="cold")
    c.Setting.objects.filter(pk=best.setting_id).update(description=said.to_json())
    page = text(pages, f"/operators/{explored.key}/?at={best.target_id}-{best.setting_id}")
    assert page.index('id="use"') < page.index('class="figures"')
    told = dict(re.findall(r'<pre id="use-(\w+)" tabindex="0">(.*?)</pre>', unescape(page), re.DOTALL))
    assert told == {
        "python": "from opatlas.client import Client\nfrom opatlas.identity import Setting\n"
        """client = Client("http://testserver", setting=Setting(threads=3, cache='cold'))\n"""
        f'hit = client.lookup("{explored.key}")  # hit.load()(…) runs it',
        "command": f"OPATLAS_URL=http://testserver opatlas lookup {explored.key} "
        """--setting '{"threads": 3, "cache": "cold"}'""",
        "curl": 'curl -s -H "Authorization: Bearer $OPATLAS_KEY" "http://testserver/api/v1/operators/'
        f'{explored.key}/best?target={best.target.key}&setting={best.setting.key}"',
        "artifact": f"http://testserver/api/v1/artifacts/{best.artifact_sha256}",
    }


def test_on_a_gpu_it_names_the_gpu_and_no_command_that_asks_for_the_processor(
    pages: Client, catalogue: Factory, explored: c.Operator
) -> None:
    there = on_a_gpu(catalogue, [explored])
    path = f"/operators/{explored.key}/?at={there.target.pk}-{there.setting.pk}"
    page = unescape(text(pages, path))
    assert 'Client("http://testserver", target=detect_gpus()[0], setting=Setting(threads=1))' in page
    assert "import detect_gpus" in page and 'id="use-command"' not in page and 'id="use-curl"' in page


def test_the_verdict_never_contradicts_the_ranking(pages: Client, catalogue: Factory) -> None:
    for best in c.Best.objects.filter(rank=0).select_related("operator")[:12]:
        rows = rows_of(pages, f"/operators/{best.operator.key}/", "implementations")
        assert rows[0]["verdict"] == "best"
        assert {row["verdict"] for row in rows[1:]} <= {"slower", "same"}


def test_the_race_is_told_as_it_ran(pages: Client, explored: c.Operator) -> None:
    path = f"/operators/{explored.key}/"
    card = text(pages, path).partition('id="race"')[2].partition("</section>")[0]
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", card))
    for words in (
        "untuned CPU schedule won: 2.14× the default (PyTorch eager, else ONNX Runtime) (2.10× – 2.18×).",
        "halide · mullapudi2016, tiles 8×32 is equal to it: the final could not tell them apart.",
        "2 heats, a final of 3 sittings, 8.2 s without the builds.",
        "The default (PyTorch eager, else ONNX Runtime) took 762 µs in it.",
        "1.31× dropped after 6 rounds: 0.4 % to win", "dropped after 3 rounds: less than 0.1 % to win",
        "ran all 12 rounds: 22 % to win, in no final", "wrong result", "1.83× to the final",
        "2.11× 2.05× – 2.17× equal to the winner", "slower in the final held",
        "numpy · einsum (library) not tried: 0.4 % to be faster than 1.83×",
    ):  # fmt: skip
        assert words in said, words
    rows = rows_of(pages, path, "race")
    assert [row["route"] for row in rows[:4]] == ["tvm", "halide", "onnxruntime", "cpp"]
    assert {row["default_us"] for row in rows} == {762.0} and len(rows) == 12
    assert (rows[1]["equal"], rows[1]["ratio_low"], rows[1]["chance"]) == (True, 2.0467, 0.31)


def test_an_earlier_race_is_chosen_by_the_address(pages: Client, explored: c.Operator) -> None:
    first = t.Race.objects.filter(exploration__operator=explored).order_by("pk")[0]
    html = text(pages, f"/operators/{explored.key}/?race={first.pk}")
    assert "is equal to it: the final could not tell them apart, so who was served stays." in html
    assert "Heat 1" not in html and f'<option value="{first.pk}" selected>' in html
    other = t.Race.objects.exclude(exploration__operator=explored)[0]
    assert "Heat 1" in text(pages, f"/operators/{explored.key}/?race={other.pk}")  # its own latest


def test_a_race_of_another_organisation_is_not_told(
    pages: Client, member: Callable[[str], Client], explored: c.Operator
) -> None:
    owner = c.Organisation.objects.get(name="default")
    t.Exploration.objects.filter(operator=explored).update(scope=f"org:{owner.pk}", owner=owner)
    path = f"/operators/{explored.key}/"
    assert 'id="race"' in text(pages, path)
    stranger = member("admin")
    assert 'id="race"' not in text(stranger, path) and rows_of(stranger, path, "race") == []


def test_who_is_equal_is_said_to_be(pages: Client, explored: c.Operator) -> None:
    first, other = c.Best.objects.filter(operator=explored, method__in=["library", "compiler"]).order_by(
        "method", "rank"
    )[:2]
    c.Best.objects.filter(operator=explored, rank=0).update(rank=9)
    c.Best.objects.filter(pk=first.pk).update(rank=0)
    c.Best.objects.filter(pk=other.pk).update(rank=1, equal=True)
    path = f"/operators/{explored.key}/"
    rows = {row["route"]: row["verdict"] for row in rows_of(pages, path, "methods")}
    assert rows[other.route].endswith("are equal: the race that decided did not tell them apart.")
    rows = {row["route"]: row["verdict"] for row in rows_of(pages, path, "implementations")}
    assert (rows[first.route], rows[other.route]) == ("best", "equal")


def test_what_compares_is_the_ratio(pages: Client, explored: c.Operator) -> None:
    """A time of another minute says nothing beside one of this: whoever is faster by it may be slower."""
    best = c.Best.objects.get(operator=explored, rank=0)
    slow = {"median_us": best.median_us / 10, "default_us": best.default_us / 11}
    late = c.Best.objects.filter(operator=explored, rank=3).get()
    c.Measurement.objects.filter(pk=late.measurement_id).update(**slow)
    html = text(pages, f"/operators/{explored.key}/")
    table = html.partition('id="table-implementations"')[2].partition("</table>")[0]
    assert table.index("Over the default") < table.index("As its race saw it")
    assert (
        len(re.findall("default [0-9.,]+ [mnµ]?s<", table))
        == c.Best.objects.filter(operator=explored).count()
    )


def test_trials_are_filtered_by_the_address(pages: Client, explored: c.Operator) -> None:
    path = f"/operators/{explored.key}/"
    html = text(pages, f"{path}?status=crashed")
    assert "signal 11 (SIGSEGV)" in html and "limit 20 s" not in html
    assert {row["status"] for row in rows_of(pages, f"{path}?status=crashed", "trials")} == {"crashed"}
    tvm = rows_of(pages, f"{path}?route=tvm", "trials")
    assert {row["route"] for row in tvm} == {"tvm"} and "wrong_result" in {row["status"] for row in tvm}
    everything = t.Trial.objects.filter(exploration__operator=explored).count()
    assert len(rows_of(pages, f"{path}?status=nonsense", "trials")) == everything


def test_trials_are_paged(pages: Client, explored: c.Operator) -> None:
    row = t.Exploration.objects.get(operator=explored)
    t.Trial.objects.bulk_create(
        t.Trial(
            exploration=row, route="tvm", method="compiler", stage=2, status="slower", detail=f"trial {n}!"
        )
        for n in range(60)
    )
    first = text(pages, f"/operators/{explored.key}/")
    assert "trial 59!" in first and "trial 3!" not in first
    assert "trial 3!" in text(pages, f"/operators/{explored.key}/?page=2")
    assert "trial 3!" in text(pages, f"/operators/{explored.key}/?page=99")  # the last there is


def test_code_is_shown_and_downloaded(pages: Client, explored: c.Operator) -> None:
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    path = f"/operators/{explored.key}/code/{row.pk}/"
    html = text(pages, path)
    assert "T.prim_func" in re.sub(r"<[^>]+>", "", html)
    assert '<span class="' in html.split("<pre")[1]  # highlighted
    raw = pages.get(f"{path}schedule/raw/")
    assert raw.content.decode() == row.schedule
    assert raw["Content-Disposition"].startswith("attachment")
    assert raw["Content-Type"].startswith("text/plain")
    assert json.loads(pages.get(f"{path}manifest/raw/").content) == row.artifact.manifest
    assert pages.get(f"{path}source/raw/").status_code == 404
    assert pages.get(f"{path}passwords/raw/").status_code == 404


def test_two_implementations_code_is_compared(pages: Client, explored: c.Operator, reader: Client) -> None:
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    other = c.Implementation.objects.filter(operator=explored).exclude(pk=row.pk).first()
    assert other is not None
    c.Implementation.objects.filter(pk=other.pk).update(schedule=row.schedule + "\n<b>one line more</b>")
    path = f"/operators/{explored.key}/code/{row.pk}/"
    assert f'<option value="{other.pk}"' in text(pages, path)
    html = text(pages, f"{path}?against={other.pk}")
    shown = html.split('id="difference"')[1].split("</section>")[0]
    assert "-&lt;b&gt;one line more&lt;/b&gt;" in shown and "<b>" not in shown
    for wrong in ("0", "99999999", "x", "%00"):
        assert pages.get(f"{path}?against={wrong}").status_code in (200, 404)
    # What somebody may not see is not compared either.
    c.Implementation.objects.filter(pk=other.pk).update(scope=f"org:{explored.pk + 77}")
    assert reader.get(f"{path}?against={other.pk}").status_code == 404
    assert f'value="{other.pk}"' not in text(reader, path)


def test_what_a_compiled_artifact_holds(
    pages: Client, explored: c.Operator, configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(store=tmp_path)
    content = b"\x7fELF and so on"
    digest = hashlib.sha256(content).hexdigest()
    place = tmp_path / digest[:2] / digest[2:4] / digest
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    files = {"kernel.so": digest, "lost.so": "0" * 64}
    made = c.Artifact.objects.create(sha256="f" * 64, kind="c-abi", manifest={"files": files, "recipe": None})
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    c.Implementation.objects.filter(pk=row.pk).update(artifact=made)
    path = f"/operators/{explored.key}/code/{row.pk}/"
    html = text(pages, path)
    for said in ("What the artifact holds (c-abi)", f"{len(content)} B", "lost by the store"):
        assert said in html
    with monkeypatch.context() as patch:
        patch.setattr(code, "check_whole", lambda *_: None)  # nobody signed it
        answer = pages.get(f"{path}files/kernel.so")
    assert b"".join(answer.streaming_content) == content  # type: ignore[attr-defined]
    assert answer["Content-Type"] == "application/octet-stream"
    assert pages.get(f"{path}files/lost.so").status_code == 503
    assert pages.get(f"{path}files/other.so").status_code == 404


def test_a_permalink_shows_one_implementation(pages: Client, explored: c.Operator) -> None:
    row = c.Implementation.objects.get(operator=explored, route="openblas")
    place = f"{row.target_id}-{row.setting_id}"
    html = text(pages, f"/operators/{explored.key}/?at={place}&implementation={row.pk}")
    assert f'hx-get="/operators/{explored.key}/code/{row.pk}/"' in html
    assert pages.get(f"/operators/{explored.key}/?at=%00&implementation=%00&range=no").status_code == 200


def test_the_history_is_a_chart_and_a_table(pages: Client, explored: c.Operator) -> None:
    rows = rows_of(pages, f"/operators/{explored.key}/", "best")
    changes = c.BestChange.objects.filter(operator=explored).order_by("-pk")
    assert [row["reason"] for row in rows] == [change.reason for change in changes]
    last = changes[0]
    assert last.after is not None
    assert rows[0]["ratio"] == last.after.measurements.get().ratio_to_default
    assert 'id="best-chart"' in text(pages, f"/operators/{explored.key}/")


def test_whether_tuning_would_pay(pages: Client, explored: c.Operator) -> None:
    path = f"/operators/{explored.key}/"
    assert "Would more tuning pay?" in text(pages, path)
    c.LookupTally.objects.filter(operator=explored).update(hit_calls=1e9)
    assert re.search(r"it pays back in \d+ (minutes|hours|days)", text(pages, path))
    c.LookupTally.objects.all().delete()
    assert "nobody has asked for it in the last 7 days: it would not pay" in text(pages, path)


def test_every_table_is_exported(pages: Client, explored: c.Operator) -> None:
    path = f"/operators/{explored.key}/"
    html = text(pages, path)
    names = set(re.findall(r"export=csv&amp;table=(\w+)", html)) | set(
        re.findall(r"table=(\w+)&amp;export=csv", html)
    )
    assert names >= {"methods", "implementations", "trials", "best", "history", "lookups"}
    for name in names:
        answer = pages.get(f"{path}?export=csv&table={name}")
        assert answer.status_code == 200 and answer["Content-Type"].startswith("text/csv"), name


def test_a_tenant_sees_its_own_reuse_only(
    pages: Client, member: Callable[[str], Client], catalogue: Factory
) -> None:
    job = c.JobOperator.objects.select_related("operator", "job").first()
    assert job is not None
    path = f"/operators/{job.operator.key}/"
    assert job.job.name in text(pages, path)
    html = text(member("viewer"), path)
    assert job.job.name not in html and "No job has used it yet." in html
    model = c.ModelOperator.objects.select_related("model").filter(operator=job.operator).first()
    if model is not None:
        assert model.model.name not in html


def test_a_private_implementation_is_its_organisations(
    pages: Client, member: Callable[[str], Client], explored: c.Operator
) -> None:
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    scope = f"org:{c.Organisation.objects.get(name='default').pk}"
    c.Implementation.objects.filter(pk=row.pk).update(scope=scope)
    c.Best.objects.filter(implementation=row).update(scope=scope)
    path = f"/operators/{explored.key}/"
    stranger = member("admin")
    assert "private" in text(pages, path)
    assert "tvm" not in {one["route"] for one in rows_of(stranger, path, "implementations")}
    for rest in ("", "schedule/raw/", "files/kernel.so"):
        assert stranger.get(f"{path}code/{row.pk}/{rest}").status_code == 404


@pytest.mark.parametrize("role", ["viewer", "operator", "billing", "approver", "admin"])
def test_tenants_revoke_nothing_that_is_shared(
    member: Callable[[str], Client], explored: c.Operator, role: str
) -> None:
    client = member(role)
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    path = f"/operators/{explored.key}/"
    assert "Revoke an implementation" not in text(client, path)
    answer = client.post(f"{path}revoke/", {"implementation": row.pk, "reason": "because"})
    assert answer.status_code == 403
    row.refresh_from_db()
    assert row.revoked_at is None


def test_an_approver_of_the_host_revokes(member: Callable[[str], Client], explored: c.Operator) -> None:
    client = member("approver")
    c.Organisation.objects.filter(name="another").update(host=True)
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    path = f"/operators/{explored.key}/"
    assert "Revoke an implementation" in text(client, path)
    answer = client.post(f"{path}revoke/", {"implementation": row.pk, "reason": "reads too far"}, follow=True)
    assert "It is no longer served." in answer.content.decode()
    assert c.AuditEntry.objects.filter(action="implementation.revoke", subject=str(row)).exists()


class Dear(Charging):
    """Every compiler's implementation is withheld from whoever is not of the host."""

    def terms_of(
        self, organisation_id: int | None, implementations: Sequence[c.Implementation]
    ) -> Mapping[int, Terms]:
        if organisation_id is None:
            return {}
        said = "0.01 EUR a hit; withheld until credit or a plan covers it."
        return {
            one.pk: Terms(True, 10_000, "EUR", 1, "/billing/", said)
            for one in implementations
            if one.method == "compiler"
        }


def test_what_is_withheld_shows_times_and_price_and_no_code(
    pages: Client, member: Callable[[str], Client], explored: c.Operator, settings: Any
) -> None:
    settings.OPATLAS_CHARGING = f"{__name__}.Dear"
    row = c.Implementation.objects.get(operator=explored, route="tvm")
    client, path = member("viewer"), f"/operators/{explored.key}/"
    html = text(client, path)
    assert "withheld until credit or a plan covers it" in html
    # Only who has the billing role may pay.
    assert 'href="/billing/"' not in html and 'href="/billing/"' in text(member("billing"), path)
    shown = next(one for one in rows_of(client, path, "implementations") if one["route"] == "tvm")
    assert shown["median_us"] and shown["ratio_to_default"] and shown["price"]
    code = text(client, f"{path}code/{row.pk}/", status=402)
    assert "Withheld." in code and "prim_func" not in code and "Over the default" in code
    for rest in ("schedule/raw/", "manifest/raw/", "files/kernel.so"):
        answer = client.get(f"{path}code/{row.pk}/{rest}")
        assert answer.status_code == 402 and b"prim_func" not in answer.content
    eager = c.Implementation.objects.filter(operator=explored).exclude(pk=row.pk).first()
    assert eager is not None
    compared = client.get(f"{path}code/{eager.pk}/?against={row.pk}")
    assert b"prim_func" not in compared.content and b"Withheld." in compared.content
    part = client.get(f"{path}code/{row.pk}/", headers={"HX-Request": "true"})
    assert part.status_code == 200 and b"prim_func" not in part.content
    assert "T.prim_func" in re.sub(r"<[^>]+>", "", text(pages, f"{path}code/{row.pk}/"))


def test_no_query_per_implementation_or_trial(
    pages: Client, explored: c.Operator, catalogue: Factory, queries_of: Callable[[str], int]
) -> None:
    path = f"/operators/{explored.key}/"
    few = queries_of(path)
    more = [(f"more{n}", "library", f"variant {n}") for n in range(12)]
    c.BestChange.objects.filter(operator=explored).delete()
    c.Best.objects.filter(operator=explored, rank=0).update(rank=1)
    catalogue.implement(explored, more)
    exploration = t.Exploration.objects.get(operator=explored)
    catalogue.trials(exploration)
    assert queries_of(path) == few


def test_what_jobs_asked_next_is_shown_to_who_may_see_the_jobs(
    pages: Client, catalogue: Factory, member: Callable[[str], Client]
) -> None:
    before, after, far = c.Operator.objects.order_by("pk")[:3]
    c.Succession.objects.all().delete()
    for name in ("one", "other"):
        catalogue.job(name, [before, after])
    catalogue.job("third", [before, far, after])
    path = f"/operators/{before.key}/"
    html = text(pages, path)
    assert "Related to" in html and f'href="/operators/{after.key}/"' in html
    drawn = text(pages, path).split('<svg class="related"')[1].split("</svg>")[0]
    assert re.findall(r'stroke-width="([\d.]+)"', drawn) == ["9.000", "3.000"] and drawn.count("<text") == 2
    shown = [(row["key"], row["jobs"]) for row in rows_of(pages, path, "related")]
    assert shown == [(after.key, 3), (far.key, 1)]
    stranger = member("viewer")
    assert "Related to" not in text(stranger, path) and rows_of(stranger, path, "related") == []
    theirs = c.Organisation.objects.get(name="another")
    catalogue.job("theirs", [before, far], owner=theirs)
    assert [(row["key"], row["jobs"]) for row in rows_of(stranger, path, "related")] == [(far.key, 1)]
    assert [row["jobs"] for row in rows_of(pages, path, "related")] == [3, 2], "the host sees all"


def test_what_was_reported_as_failing_is_listed_and_its_errors_shown_to_who_reported(
    pages: Client, catalogue: Factory, member: Callable[[str], Client]
) -> None:
    found = t.Recheck.objects.get(state="not_reproduced")
    path = f"/operators/{found.implementation.operator.key}/"
    html = text(pages, path)
    assert "Reported as failing: 1" in html and "could not be reproduced" in html
    (row,) = rows_of(pages, path, "failures")
    assert (row["state"], row["reports"], row["said"]) == (
        "not_reproduced", 2, "KernelFailed: the kernel failed: error code 7"
    )  # fmt: skip
    other = member("viewer")
    (row,) = rows_of(other, path, "failures")
    assert (row["state"], row["reports"], row["said"]) == ("not_reproduced", 0, "")
    assert "error code 7" not in text(other, path)


def test_where_nobody_explores_it_says_what_a_neighbour_has(pages: Client, catalogue: Factory) -> None:
    best = c.Best.objects.filter(rank=0, kind="recipe").order_by("pk").first()
    assert best is not None
    there = Target.from_json(best.target.description)
    here = register_target(replace(there, cores=there.cores + 4))
    place = {"operator": best.operator, "target": here, "setting": best.setting}
    c.Miss.objects.create(**place, state="waiting")
    html = text(pages, f"/operators/{best.operator.key}/?at={here.pk}-{best.setting_id}")
    assert f"cores: {there.cores} there, {there.cores + 4} here" in html and "not here" in html
    c.Target.objects.filter(pk=here.pk).update(served_until=timezone.now() + timedelta(minutes=1))
    assert "not here" not in text(pages, f"/operators/{best.operator.key}/?at={here.pk}-{best.setting_id}")


def test_a_page_that_was_opened_after_a_miss_follows_what_becomes_of_it(pages: Client) -> None:
    factory = Factory()
    operator = factory.operator("Relu", "Relu 1000×64 float32")
    c.Miss.objects.create(operator=operator, **factory.where, state="waiting")
    page = text(pages, f"/operators/{operator.key}/")
    asked = re.search(r'hx-get="([^"]+/state/[^"]+)" hx-trigger="every 3s"', page)
    assert asked and "Asked for, and not decided yet." in page
    live = unescape(asked[1])
    assert "Asked for, and not decided yet." in text(pages, live)
    factory.implement(operator, [("tvm", "compiler", "tiled")])
    answer = pages.get(live)
    assert (answer.status_code, answer.headers.get("HX-Refresh")) == (204, "true")
    # Whoever reads evidence meanwhile is not interrupted, but told.
    known = c.Best.objects.get(operator=operator)
    told = "A faster one is known since this page was opened."
    assert told not in text(pages, live.replace("shown=0", f"shown={known.implementation_id}"))
    assert told in text(pages, live.replace("shown=0", f"shown={known.implementation_id + 1}"))
