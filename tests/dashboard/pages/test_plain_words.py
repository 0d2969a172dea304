"""Pages say what they mean: no word that only their makers know."""

from __future__ import annotations

import json
import re
from pathlib import Path

from django.test import Client

from catalog import models as c
from catalog.models import Model
from tests.dashboard.examples import page_paths
from tests.dashboard.factory import full_catalogue
from tests.dashboard.kernels import gallery
from tuning.routes.registry import ROUTES

ROOT = Path(__file__).parents[3]
INSIDERS = (
    r"\bDrift\b", r"\bFence\b", r"\b[Ll]ease\b", r"\bT[012]\b", r"[Cc]ollect queue", r"\bDead letter",
    r"\b[Dd]ecider", r"\b[Cc]ourier", r"\bCapabilit", r"\bwrong_result\b", r"By: Page", r"\d%",
    r"Hits that reuse", r"per second explored", r"(?<![\d.])0 µs", r"[Ii]ncumbent", r"[Rr]ank correlation",
)  # fmt: skip
_NO_PROSE = re.compile(r"<(script|style|pre|code|textarea|option|svg)\b.*?</\1>|<[^>]+>", re.S)
_MARKED = re.compile(r'data-method="(\w+)"><svg.*?</svg>(\w+)')
METHODS = {route.name: route.method for route in ROUTES}
ELSEWHERE = ("/api/", "/notifications/", "/admin/")


def test_no_page_uses_insiders_words_swaps_marks_or_overlooks_what_it_is_asked(pages: Client) -> None:
    gallery(full_catalogue(hours=6))
    found = []
    for name, path in page_paths().items():
        answer = pages.get(path, {"nope": "1"})
        if path.startswith(ELSEWHERE) or "text/html" not in answer.headers.get("content-type", ""):
            continue
        html = answer.content.decode()
        if answer.status_code == 200 and 'aria-label="Main"' in html and "no filter “nope”" not in html:
            found.append(f"{name} does not say that it has no filter of this name")
        swapped = {(mark, route) for mark, route in _MARKED.findall(html) if METHODS.get(route, mark) != mark}
        found += [f"{name}: {route} has the mark of {mark}" for mark, route in swapped]
        said = _NO_PROSE.sub(" ", html)
        for word in INSIDERS:
            if hit := re.search(f".{{0,40}}{word}.{{0,40}}", said):
                found.append(f"{name}: {hit[0]!r}")
    assert not found, "\n".join(found)


def test_no_page_of_the_documentation_does() -> None:
    """Of what users read: what builders read may use their words."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for word in (r"[Ii]ncumbent", r"[Rr]ank correlation"):
            assert not re.search(word, path.read_text()), f"{path.name} says {word}"


def test_whose_time_the_default_is_is_said(pages: Client) -> None:
    gallery(full_catalogue(hours=6))
    operator = c.Best.objects.filter(route="tvm", rank=0).first()
    c.Measurement.objects.update(default_route="onnxruntime")
    assert operator is not None
    path = f"/operators/{operator.operator.key}/"
    html = pages.get(path).content.decode()
    assert "1× is the default (ONNX Runtime)" in html
    assert "speed over the default\\u003Cbr\\u003E(ONNX Runtime)" in html
    rows = json.loads(pages.get(f"{path}?export=json&table=implementations").content)["rows"]
    assert {row["default_route"] for row in rows} == {"onnxruntime"}
    listed = pages.get("/operators/").content.decode()
    assert "default (ONNX Runtime) " in listed
    unknown = "default (PyTorch eager, else ONNX Runtime)"
    model = Model.objects.order_by("pk").first()
    assert model is not None
    assert unknown in pages.get(f"/models/{model.pk}/").content.decode()


def test_operators_open_on_the_time_saved(pages: Client) -> None:
    full_catalogue(hours=6)
    opened = pages.get("/operators/").content.decode()
    rows = re.compile(r'href="(/operators/o1[^"]+/)"')
    asked = rows.findall(pages.get("/operators/?sort=-saved").content.decode())
    assert rows.findall(opened) == asked and 'name="sort" value="-saved"' in opened


def test_every_page_opens_on_the_same_time(pages: Client) -> None:
    full_catalogue(hours=30)
    chosen = re.compile(r'aria-current="true"[^>]*>(24h|7d|30d|90d|1y)<')
    shown = {
        path: chosen.findall(pages.get(path).content.decode())
        for path in ("/methods/", "/jobs/", "/audit/", "/billing/", "/")
    }
    assert {text for texts in shown.values() for text in texts} == {"7d"}, shown
