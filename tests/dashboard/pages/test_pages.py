"""What pages show, to whom, and at what price."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from catalog import models as c
from tests.dashboard.factory import Factory, resnet_operators
from tuning import models as t
from tuning.uploads.models import Upload

LISTS = ("/", "/operators/", "/explorations/", "/models/")


def every_path() -> list[str]:
    """One of each page, for what the catalogue holds."""
    best = c.Best.objects.filter(rank=0, method="compiler").first()
    tried = t.Exploration.objects.filter(state="done").first()
    assert best is not None and tried is not None
    return [
        *LISTS,
        "/overview/live/",
        "/environments/",
        "/?range=24h",
        "/?range=30d",
        f"/operators/{best.operator.key}/",
        f"/operators/{tried.operator.key}/",
        f"/operators/{best.operator.key}/code/{best.implementation_id}/",
        f"/operators/{c.Miss.objects.filter(state='waiting')[0].operator.key}/",
        *(f"/explorations/{pk}/" for pk in t.Exploration.objects.values_list("pk", flat=True)),
        *(f"/models/{pk}/" for pk in c.Model.objects.values_list("pk", flat=True)),
        "/password/",
    ]


def test_every_page_answers(pages: Client, catalogue: Factory) -> None:
    for path in every_path():
        assert pages.get(path).status_code == 200, path


def test_pages_ask_for_a_login_and_come_back(client: Client, catalogue: Factory) -> None:
    for path in every_path():
        answer = client.get(path)
        assert answer.status_code == 302, path
        assert answer.headers["Location"].startswith("/login/?next=/"), path


def test_the_api_asks_for_a_key_instead_of_a_login(client: Client, db: None) -> None:
    answer = client.get("/api/v1/operators/")
    assert answer.status_code == 401


def test_liveness_needs_neither_login_nor_database(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_logging_in_and_out(client: Client, administrator: object) -> None:
    answer = client.post("/login/", {"username": "admin", "password": "admin", "next": "/models/"})
    assert answer.headers["Location"] == "/models/"
    assert b"Log out" in client.get("/models/").content
    client.post("/logout/")
    assert client.get("/models/").status_code == 302


def test_a_wrong_password_says_so(client: Client, administrator: object) -> None:
    answer = client.post("/login/", {"username": "admin", "password": "no"})
    assert b"correct username and password" in answer.content


def test_an_unknown_operator_is_not_found(pages: Client) -> None:
    assert pages.get("/operators/o1:none/").status_code == 404


def test_pages_bring_no_inline_script_and_nothing_from_elsewhere(pages: Client, catalogue: Factory) -> None:
    for path in every_path():
        html = pages.get(path).content.decode()
        for attributes, body in re.findall(r"<script([^>]*)>(.*?)</script>", html, re.S):
            assert 'type="application/json"' in attributes or not body.strip(), path
        assert not re.search(r"\son\w+=", html), path
        assert not re.search(r"\sstyle=", html), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', html), path


@pytest.mark.parametrize("path", ["/operators/", "/explorations/", "/models/", "/"])
def test_a_longer_list_takes_no_more_queries(
    path: str, db: None, queries_of: Callable[[str], int], django_assert_num_queries: object
) -> None:
    factory = Factory()
    operators = resnet_operators(factory, 40)

    def fill(part: list[c.Operator], name: str) -> None:
        for operator in part:
            factory.implement(operator)
            factory.miss(operator, "explored")
            factory.trials(factory.explore(operator, "queued"))
        factory.model(name, part)
        factory.job(name, part)

    fill(operators[:4], "small")
    few = queries_of(path)
    fill(operators[4:], "large")
    assert queries_of(path) == few


def test_detail_pages_take_no_query_per_row(db: None, queries_of: Callable[[str], int]) -> None:
    factory = Factory()
    operators = resnet_operators(factory, 30)
    explorations = []
    for operator, routes in zip(operators, [2, 6] * 15, strict=True):
        factory.implement(operator, [(f"route{n}", "library", "") for n in range(routes)])
        factory.miss(operator, "explored")
        explorations.append(factory.explore(operator, "done"))
    factory.trials(explorations[0], failures=False)
    factory.trials(explorations[1])
    for n in range(10):
        factory.job(f"job {n}", operators[1:2])
    small, large = factory.model("small", operators[:3]), factory.model("large", operators)
    factory.job("job", operators[:1])
    assert queries_of(f"/operators/{operators[0].key}/") == queries_of(f"/operators/{operators[1].key}/")
    assert queries_of(f"/explorations/{explorations[0].pk}/") == queries_of(
        f"/explorations/{explorations[1].pk}/"
    )
    assert queries_of(f"/models/{small.pk}/") == queries_of(f"/models/{large.pk}/")


def test_an_empty_catalogue_shows_how_to_begin(pages: Client) -> None:
    html = pages.get("/").content.decode()
    assert "Take the sample ResNet-50" in html
    assert "/api/v1/lookup" in html
    for path in LISTS[1:]:
        assert b"sample" in pages.get(path).content or path == "/explorations/"


def test_an_operators_page_shows_every_implementation_and_failure(pages: Client, catalogue: Factory) -> None:
    exploration = t.Exploration.objects.filter(state="done").first()
    assert exploration is not None
    html = pages.get(f"/operators/{exploration.operator.key}/").content.decode()
    for route in ("eager", "onednn", "onnxruntime", "mkl", "tvm", "openblas"):
        assert route in html
    assert "signal 11 (SIGSEGV)" in html  # why a trial crashed
    assert "max error 0.31" in html
    assert "nightly-train" in html  # a job that reuses it
    assert "curl -s" in html and exploration.operator.key in html


def test_the_code_of_a_compiled_implementation_is_shown_highlighted(
    pages: Client, catalogue: Factory
) -> None:
    made = c.Implementation.objects.filter(route="tvm").first()
    assert made is not None
    html = pages.get(f"/operators/{made.operator.key}/code/{made.pk}/").content.decode()
    assert '<span class="nd">@T' in html


def test_an_exploration_that_was_given_up_shows_its_error(pages: Client, catalogue: Factory) -> None:
    dead = t.Exploration.objects.get(state="dead")
    html = pages.get(f"/explorations/{dead.pk}/").content.decode()
    assert "was lost 3 times" in html


def test_a_private_implementation_is_seen_by_administrators_only(
    pages: Client, reader: Client, db: None
) -> None:
    factory = Factory()
    [operator] = resnet_operators(factory, 1)
    factory.implement(operator, [("secret-route", "manual", "ours")])
    for table in (c.Implementation, c.Best, c.BestChange):
        table.objects.update(scope="org:1")
    factory.miss(operator, "waiting")
    path = f"/operators/{operator.key}/"
    assert b"secret-route" in pages.get(path).content
    assert b"secret-route" not in reader.get(path).content
    assert b"secret-route" not in reader.get("/operators/").content


def test_a_file_that_is_no_model_is_refused_with_a_sentence(pages: Client, uploads_at_once: None) -> None:
    file = SimpleUploadedFile("x.onnx", b"\x01\x02 not a model")
    answer = pages.post("/models/", {"file": file, "name": ""}, follow=True)
    assert "no complete ONNX file" in answer.content.decode()
    assert b'role="alert"' in answer.content
    assert not c.Model.objects.exists()


def test_a_dimension_that_is_none_is_refused_by_name(pages: Client, db: None) -> None:
    answer = pages.post("/models/", {"file": SimpleUploadedFile("x.onnx", b"x"), "dims": "batch=zero"})
    assert answer.status_code == 400
    assert "“batch=zero” is no dimension" in answer.content.decode()


def test_an_uploaded_model_leads_to_its_report(pages: Client, uploads_at_once: None) -> None:
    from tuning.ingest import sample_graph

    upload = SimpleUploadedFile("resnet50.onnx", sample_graph("resnet50"))
    answer = pages.post("/models/", {"file": upload, "name": "mine"}, follow=True)
    assert answer.status_code == 200
    model, given = c.Model.objects.get(), Upload.objects.get()
    assert answer.redirect_chain == [(f"/models/uploads/{given.pk}/", 302), (f"/models/{model.pk}/", 302)]
    assert model.name == "mine" and model.calls == 176
    assert c.Miss.objects.count() == model.operators.count()
    assert b"No live worker serves" in answer.content


def test_the_sample_takes_one_click(pages: Client, uploads_at_once: None) -> None:
    answer = pages.post("/models/sample/", follow=True)
    assert "ResNet-50 (sample)" in answer.content.decode()


def test_administrators_pause_and_resume(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="queued").first()
    assert row is not None
    pages.post(f"/explorations/{row.pk}/pause/")
    row.refresh_from_db()
    assert row.state == "paused" and "by admin" in row.reason
    pages.post(f"/explorations/{row.pk}/resume/")
    row.refresh_from_db()
    assert row.state == "queued"
    pages.post("/queues/pause/")
    assert "paused by admin" in pages.get("/").content.decode()
    pages.post("/queues/resume/", {"capability": "*"})
    assert not t.Pause.objects.exists()


def test_what_is_not_possible_says_why(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="done").first()
    assert row is not None
    answer = pages.post(f"/explorations/{row.pk}/pause/", follow=True)
    assert b'class="note error"' in answer.content


def test_others_may_look_but_not_operate(reader: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="queued").first()
    assert row is not None
    assert reader.post(f"/explorations/{row.pk}/discard/").status_code == 403
    assert reader.post("/queues/pause/").status_code == 403
    assert b"Discard" not in reader.get(f"/explorations/{row.pk}/").content


def test_a_link_changes_nothing(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="queued").first()
    assert row is not None
    for path in (f"/explorations/{row.pk}/discard/", "/queues/pause/", "/models/sample/", "/logout/"):
        assert pages.get(path).status_code == 405, path


def test_administration_lists_every_table(pages: Client, catalogue: Factory) -> None:
    html = pages.get("/admin/").content.decode()
    for path in re.findall(r'href="(/admin/(?:catalog|tuning)/\w+/)"', html):
        assert pages.get(path).status_code == 200, path
