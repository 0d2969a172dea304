"""Headers of every answer, pages without inline code, and ``check --deploy``."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from dashboard.operation.policy import POLICY
from dashboard.project.finders import bundle_folder
from dashboard.project.secret import secret_key

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[3]


def policy(answer: Any) -> dict[str, str]:
    parts = answer["Content-Security-Policy"].split("; ")
    return {name: rest for name, _, rest in (part.partition(" ") for part in parts)}


@pytest.mark.parametrize(
    "path",
    ["/login/", "/", "/definitions/", "/api/v1/docs/", "/admin/login/", "/api/v1/operators/", "/nothing/here",
     "/static/js/app.js", "/healthz"],
)  # fmt: skip
def test_every_answer_has_the_policy(pages: Client, path: str) -> None:
    answer = pages.get(path, follow=True)
    found = policy(answer)
    assert found["default-src"] == "'none'" and found["base-uri"] == "'none'"
    assert found["script-src"] == found["style-src"] == found["connect-src"] == "'self'"
    assert found["form-action"] == "'self'" and found["frame-ancestors"] == "'none'"
    assert found["report-uri"] == "/csp-report"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Permissions-Policy"].startswith("accelerometer=()")
    if not path.startswith("/static"):
        assert answer["Referrer-Policy"] == "same-origin"
        assert answer["Cross-Origin-Opener-Policy"] in ("same-origin", "unsafe-none")


def test_policy_allows_nothing_inline() -> None:
    assert "unsafe" not in POLICY and "http" not in POLICY


INLINE = re.compile(
    r"<style|\sstyle\s*=|\son[a-z]+\s*=\s*[\"']|[\"']javascript:|hx-on|<script(?![^>]*\bsrc=)", re.IGNORECASE
)


def test_no_template_has_inline_code() -> None:
    """``json_script`` writes data, which is no code; templates themselves have no <script> without src."""
    found = [
        f"{path.relative_to(ROOT)}: {match.group(0)!r}"
        for folder in (ROOT / "templates", ROOT / "dashboard")
        for path in folder.rglob("*.html")
        # Mail is read by mail programs, which know no other way.
        if "mail" not in path.name
        for match in INLINE.finditer(re.sub(r"\{#.*?#\}", "", path.read_text()))
    ]
    assert found == []


def test_plotly_finds_the_marks_that_keep_it_from_writing_styles() -> None:
    """A new version of Plotly may look for others: this says so, and the browser tests see the violation."""
    bundle = (bundle_folder() / "plotly.min.js").read_text()
    marks = set(re.findall(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)', bundle))
    template = (ROOT / "templates/parts/_charts.html").read_text()
    assert len(marks) >= 1 and all(f'id="{mark}"' in template for mark in marks)
    assert '.matches(".no-inline-styles")' in bundle
    assert 'id="plotly.js-style-global" class="no-inline-styles"' in template


def test_reports_are_logged_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    report = {"csp-report": {"effective-directive": "script-src", "blocked-uri": "inline\nforged line",
                             "document-uri": "https://x/" + "a" * 5000, "other": "left out"}}  # fmt: skip
    with caplog.at_level(logging.WARNING, logger="opatlas.csp"):
        answer = Client(enforce_csrf_checks=True).post(
            "/csp-report", json.dumps(report), content_type="application/csp-report"
        )
    assert answer.status_code == 204
    (record,) = [one for one in caplog.records if one.name == "opatlas.csp"]
    assert "script-src" in record.getMessage() and "\n" not in record.getMessage()
    assert "left out" not in record.getMessage() and len(record.getMessage()) < 1500


@pytest.mark.parametrize("body", ["", "no json", "[]", '{"csp-report": 7}', "{" * 5000, "x" * 100_000])
def test_other_reports_are_taken_and_forgotten(body: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = Client().post("/csp-report", body, content_type="application/csp-report")
    assert answer.status_code == 204
    assert [one for one in caplog.records if one.name == "opatlas.csp"] == []


def test_api_page_has_its_script_in_a_file() -> None:
    page = Client().get("/api/v1/docs/")
    assert not INLINE.search(page.content.decode())
    script = re.findall(r'<script src="([^"]+)"', page.content.decode())[-1]
    answer = Client().get(script.replace("&amp;", "&"))
    assert answer["Content-Type"].startswith("application/javascript")
    assert "SwaggerUIBundle" in answer.content.decode()


def deployed(tmp_path: Path, **environment: str) -> dict[str, str]:
    given = {
        name: text for name, text in os.environ.items() if name != "DJANGO_ALLOW_ASYNC_UNSAFE"
    }  # a browser's
    return {
        **given, "OPATLAS_HOME": str(tmp_path), "OPATLAS_HTTPS": "1", "OPATLAS_PROXIES": "1",
        "OPATLAS_PROXY_HEADER": "X-Forwarded-For",
        "OPATLAS_HOSTS": "opatlas.example.com", "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "OPATLAS_SECRET_KEY": "", **environment,
    }  # fmt: skip


@pytest.mark.slow
def test_check_deploy_is_clean(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT, env=deployed(tmp_path), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout + done.stderr


ASK = """
import django; django.setup()
from django.test import Client
client = Client(headers={"host": "opatlas.example.com"})
plain = client.get("/login/")
print(plain.status_code, plain["Location"])
print(client.get("/healthz").status_code, client.get("/readyz").status_code in (200, 503))
secure = client.get("/login/", headers={"X-Forwarded-Proto": "https"})
print(secure.status_code, secure["Strict-Transport-Security"])
cookie = secure.cookies["__Host-csrftoken"]
print(bool(cookie["secure"]), bool(cookie["httponly"]), cookie["samesite"])
"""


@pytest.mark.slow
def test_behind_https_everything_goes_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=deployed(tmp_path), capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "301 https://opatlas.example.com/login/",
        "200 True",
        "200 max-age=31536000; includeSubDomains; preload",
        "True True Lax",
    ], done.stderr


def test_settings_of_the_tests_have_the_middleware_in_order() -> None:
    order = django_settings.MIDDLEWARE
    names = ["RequestMiddleware", "AddressMiddleware", "SecurityMiddleware", "PolicyMiddleware",
             "AttemptsMiddleware", "SessionMiddleware"]  # fmt: skip
    places = [next(i for i, name in enumerate(order) if name.endswith(one)) for one in names]
    assert places == sorted(places)


def test_browsers_find_an_icon_everywhere() -> None:
    answer = Client().get("/favicon.ico", follow=True)
    assert answer.status_code == 200 and answer["Content-Type"].startswith("image/svg")


def test_two_that_start_at_the_same_moment_have_the_same_secret_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys, making, go_on = tmp_path / "secret_key", [], threading.Event(), threading.Event()

    def slowly(length: int) -> str:
        monkeypatch.undo()
        making.set()
        assert go_on.wait(30)
        return "the slow one's"

    monkeypatch.setattr("dashboard.project.secret.secrets.token_urlsafe", slowly)
    first = threading.Thread(target=lambda: keys.append(secret_key(path)))
    first.start()
    assert making.wait(30)
    second = secret_key(path)
    go_on.set()
    first.join()
    assert [second] == keys and len(second) > 40
    assert [path] == list(tmp_path.iterdir()) and path.stat().st_mode & 0o777 == 0o600
