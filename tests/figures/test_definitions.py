"""Definitions are in one place, and the documentation repeats it."""

from __future__ import annotations

import re
from pathlib import Path

from django.test import Client

from catalog.figures import FIGURES, GROUPS
from catalog.management.commands.describe_figures import described

ROOT = Path(__file__).resolve().parents[2]
_USED = re.compile(r"""\{%\s*figure\s+["']([a-z_0-9]+)["']|figure=["']([a-z_0-9]+)["']""")


def test_the_documentation_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "figures.md").read_text()
    assert written == described(), "run: manage.py describe_figures > docs/figures.md"


def test_no_name_is_used_twice() -> None:
    names = [figure.name for _, figures in GROUPS for figure in figures]
    assert len(names) == len(set(names)) == len(FIGURES)


def test_every_figure_that_a_page_names_is_defined() -> None:
    files = [
        *ROOT.glob("templates/**/*.html"),
        *ROOT.glob("dashboard/**/*.py"),
        *ROOT.glob("dashboard/**/*.html"),
    ]
    used = {name for file in files for pair in _USED.findall(file.read_text()) for name in pair if name}
    assert used and used <= set(FIGURES)


def test_the_page_has_every_definition_under_its_name(pages: Client) -> None:
    html = pages.get("/definitions/").content.decode()
    for figure in FIGURES.values():
        assert f'id="{figure.name}"' in html
    answer = pages.get("/definitions/", {"export": "json"}).json()
    assert {row["name"] for row in answer["rows"]} == set(FIGURES)
