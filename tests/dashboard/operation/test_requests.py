"""A request's id, its log line, and its place in the metrics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver, path

from catalog.context import added_log_fields, log_fields
from catalog.models import AuditEntry
from catalog.people.secret_links import without_secret_links
from dashboard.operation.logs import (
    AddContext,
    JsonLines,
    PlainLines,
    logging_settings,
)

pytestmark = pytest.mark.django_db


class Kept(logging.Handler):
    """Lines as they would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.addFilter(AddContext())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def log() -> Iterator[Kept]:
    kept, access = Kept(), logging.getLogger("opatlas.access")
    before = access.level
    access.setLevel(logging.INFO)
    logging.getLogger().addHandler(kept)
    yield kept
    logging.getLogger().removeHandler(kept)
    access.setLevel(before)


def broken(request: Any) -> Any:
    raise RuntimeError("secret detail")


handler500 = "dashboard.operation.failing.server_error"
urlpatterns = [path("broken", broken), path("api/broken", broken)]


@pytest.mark.parametrize("given", ["req-12345678", "A.b_c-" + "d" * 58, "0" * 8])
def test_sane_id_is_taken(given: str) -> None:
    assert Client().get("/healthz", headers={"X-Request-ID": given})["X-Request-ID"] == given


@pytest.mark.parametrize(
    "given",
    ["", "short", "x" * 65, "has space in", "new\nline-here", "<script>alert", "-begins-so", "ünïcödé-id"],
)
def test_other_ids_are_replaced(given: str) -> None:
    answer = Client().get("/healthz", META={}, HTTP_X_REQUEST_ID=given)
    assert re.fullmatch("[0-9a-f]{32}", answer["X-Request-ID"])


def test_every_request_has_its_own() -> None:
    assert Client().get("/healthz")["X-Request-ID"] != Client().get("/healthz")["X-Request-ID"]


def test_errors_of_the_api_carry_it() -> None:
    answer = Client().get("/api/v1/operators/", headers={"X-Request-ID": "req-12345678"})
    assert answer.status_code == 401 and answer.json()["request_id"] == "req-12345678"


def test_what_breaks_is_answered_without_details(settings: Any, log: Kept) -> None:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "LoginRequired" not in name]
    client = Client(raise_request_exception=False)
    answer = client.get("/api/broken", headers={"X-Request-ID": "req-12345678"})
    assert answer.status_code == 500
    assert answer.json() == {
        "error": "Something broke on our side; it was logged.", "request_id": "req-12345678"
    }  # fmt: skip
    page = client.get("/broken", headers={"X-Request-ID": "req-87654321"})
    assert "req-87654321" in page.content.decode() and "secret detail" not in page.content.decode()
    (line,) = [one for one in log.lines if one.get("request_id") == "req-12345678" and "traceback" in one]
    assert "secret detail" in line["traceback"] and line["level"] == "ERROR"


def test_access_line_says_who_what_and_how_long(log: Kept, api: Any, pages: Client) -> None:
    api.get("operators/", limit=1)
    pages.get("/definitions/?secret=token")
    by_key, by_user = [one for one in log.lines if one["logger"] == "opatlas.access"][-2:]
    assert (by_key["method"], by_key["route"], by_key["status"]) == ("GET", "operator-list", 200)
    assert by_key["api_key"] and by_key["organisation"] and 0 < by_key["duration_ms"] < 60_000
    assert by_key["time"].endswith("Z") and by_key["level"] == "INFO"
    assert (by_user["user"], by_user["route"], by_user["path"]) == ("admin", "definitions", "/definitions/")
    assert "token" not in json.dumps(by_user)
    assert by_key["request_id"] != by_user["request_id"]


def test_audit_entries_have_the_requests_id(pages: Client) -> None:
    answer = pages.post("/logout/", headers={"X-Request-ID": "req-12345678"})
    assert answer.status_code == 302
    assert AuditEntry.objects.latest("pk").request_id == "req-12345678"


def test_lines_inside_a_piece_of_work_carry_its_fields(log: Kept) -> None:
    logger = logging.getLogger("tuning.anything")
    with added_log_fields(exploration_id=7), added_log_fields(request_id="r"):
        logger.warning("inside %s", "here")
    logger.warning("outside")
    inside, outside = log.lines[-2:]
    assert (inside["exploration_id"], inside["request_id"], inside["message"]) == (7, "r", "inside here")
    assert "exploration_id" not in outside and log_fields() == {}


def test_a_workers_lines_name_the_exploration(
    log: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """As the worker does it, around whatever a slice logs."""
    from contextlib import nullcontext
    from types import SimpleNamespace

    from tuning.queue.sharing import Work, WorkTurn
    from tuning.worker import process as worker
    from tuning.worker import stopping

    def slice_that_logs(workshop: object, claim: Any) -> int:
        logging.getLogger("tuning.routes").warning("the compiler failed")
        return 1

    monkeypatch.setattr(worker, "run_slice", slice_that_logs)
    monkeypatch.setattr(stopping, "is_asked", lambda: True)
    process = worker.WorkerProcess.__new__(worker.WorkerProcess)
    process.name = "test"
    process.keeper = SimpleNamespace(drop=lambda claim: None)  # type: ignore[assignment]
    monkeypatch.setattr(process, "_workshop", lambda: None)
    monkeypatch.setattr(worker, "charged", lambda *_: nullcontext())
    turn = WorkTurn(1, Work.FIRST)
    assert process._run_pack(turn, [SimpleNamespace(pk=41)]) == 1  # type: ignore[list-item]
    (line,) = [one for one in log.lines if one["message"] == "the compiler failed"]
    assert line["exploration_id"] == 41


def test_plain_lines_unless_json_is_asked_for() -> None:
    plain, structured = logging_settings("", "INFO"), logging_settings("json", "INFO")
    assert plain["handlers"]["console"]["formatter"] == "line"
    assert plain["loggers"]["opatlas.access"]["level"] == "WARNING"  # people want news, not traffic
    assert structured["handlers"]["console"]["formatter"] == "json"
    assert structured["loggers"]["opatlas.access"]["level"] == "INFO"


def test_strange_things_in_a_record_do_not_break_a_line(log: Kept) -> None:
    logging.getLogger("odd").warning(
        '%s\n{"level": "forged"}', "x", extra={"thing": object(), "path": b"\xff"}
    )
    assert log.lines[-1]["level"] == "WARNING" and "forged" in log.lines[-1]["message"]


SECRETS = {"token", "uidb64", "secret", "code", "signature"}


def addresses_with_secrets(patterns: Any, before: str = "/") -> Iterator[str]:
    """Every page whose address opens something by itself, with an example of what opens it."""
    for one in patterns:
        begins = before + str(one.pattern)
        if hasattr(one, "url_patterns"):
            yield from addresses_with_secrets(one.url_patterns, begins)
        elif SECRETS & set(re.findall(r"<(?:\w+:)?(\w+)>", begins)):
            yield re.sub(r"<[^>]*>", "s3cr3t-Value", begins)


LINKS = sorted(addresses_with_secrets(get_resolver("dashboard.urls").url_patterns))


def test_there_are_pages_that_are_opened_by_their_address_alone() -> None:
    assert len(LINKS) == 3, LINKS


@pytest.mark.parametrize("path", [*LINKS, *(path.rstrip("/") for path in LINKS), "/invited//s3cr3t-Value/x"])
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_links_that_open_an_account_are_in_no_log(log: Kept, path: str, method: str) -> None:
    getattr(Client(raise_request_exception=False), method)(path)
    assert log.lines and "s3cr3t" not in json.dumps(log.lines)
    assert any("…" in line.get("path", "") for line in log.lines)
    assert not AuditEntry.objects.filter(subject__contains="s3cr3t").exists()


def test_a_reported_address_is_hidden_too(log: Kept) -> None:
    report = {"csp-report": {"document-uri": "http://x/invited/s3cr3t-Value/", "blocked-uri": "inline"}}
    Client().post("/csp-report", json.dumps(report), content_type="application/csp-report")
    assert "s3cr3t" not in json.dumps(log.lines)
    record = logging.makeLogRecord({"msg": "Not Found: %s", "args": ("/forgotten/s3cr3t/1-2/",)})
    assert PlainLines().format(record).endswith("Not Found: /forgotten/…")
    assert without_secret_links("/operators/o1:ab/?q=invited/") == "/operators/o1:ab/?q=invited/"
