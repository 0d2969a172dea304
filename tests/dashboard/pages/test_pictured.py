"""Every page has a picture in docs/pages, or a reason why it has none."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import resolve

from tests.dashboard.examples import page_paths
from tests.dashboard.factory import Factory
from tests.dashboard.kernels import gallery
from tests.dashboard.pictured import ASKED, BEFORE_LOGIN, FOUND, LEFT_OUT, PLAIN, pictured_pages
from tests.databases import ROOT

PICTURES = ROOT / "docs" / "pages"
NAMED = {*BEFORE_LOGIN, *PLAIN, *FOUND, *ASKED}


@pytest.mark.slow
def test_no_page_is_left_out(pages: Client, catalogue: Factory) -> None:
    gallery(catalogue)
    forgotten = {}
    for path in page_paths().values():
        name = resolve(path).view_name
        if name in pictured_pages() or name in LEFT_OUT:
            continue
        answer = pages.get(path)
        # What has no head is a live part of another page.
        if answer.status_code == 200 and not answer.streaming and b"<head>" in answer.content:
            forgotten[name] = path
    assert not forgotten, f"tests/dashboard/pictured.py lacks: {forgotten}"


def test_pictures_are_of_pages_that_there_are() -> None:
    lie_there = {path.stem.rpartition("-")[0] for path in PICTURES.glob("*.webp")}
    assert lie_there <= NAMED
    assert {path.stem.rpartition("-")[2] for path in PICTURES.glob("*.webp")} == {"light", "dark"}


def test_the_gallery_shows_each_page_of_the_menu() -> None:
    from dashboard.web.menu import MENU

    table = (PICTURES / "README.md").read_text()
    shown = set(re.findall(r"\]\(([\w-]+)-(?:light|dark)\.webp", table))
    pictures = {page: name for name, page in PLAIN.items()}
    # Of a list, or of one of its rows.
    of_row = {
        "jobs": "job", "models": "model", "explorations": "exploration", "kernels": "kernel",
        "alerts": "alert", "failures": "failure",
    }  # fmt: skip
    wanted = {one.page for _, entries in MENU for one in entries}
    missing = {page for page in wanted if not {pictures[page], of_row.get(page, "")} & shown}
    assert not missing, f"docs/pages/README.md shows no picture of {missing}"
