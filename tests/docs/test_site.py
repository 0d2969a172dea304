"""The documentation as a site, and its links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import ROOT
from tests.docs import links
from tests.docs.site import address_of, linked, source_of, table, with_tables


def test_no_link_leads_nowhere() -> None:
    assert len(links.documents()) > 20
    assert not {str(page): wrong for page in links.documents() if (wrong := links.broken(page))}


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What is `a`, and why?\n```sh\n# no heading\n```\n## One – two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#what-is-a-and-why) [c](#here) [d](https://x.example/#y)\n"
        "`[e](f.md)` [g](gone.md) [h](other.md#no-heading) [i](#there) [j](other.md#one-two)\n"
    )
    assert links.broken(page) == ["gone.md", "other.md#no-heading", "#there", "other.md#one-two"]


def test_links_are_rewritten_for_the_site() -> None:
    names = "index DESIGN client pages/README opatlas/plan/README deploy/README"
    addresses = {f"{name}.md" for name in names.split()}
    assert all(address_of(source_of(address)) == address for address in addresses)
    text = "[a](docs/client.md#b) ![c](docs/pages/README.md) [d](DESIGN.md) [e](LICENSE) [f](gone.md)"
    assert linked(text, "index.md", addresses) == (
        "[a](client.md#b) ![c](pages/README.md) [d](DESIGN.md) e [f](gone.md)"
    )
    text = "[a](../README.md) [b](../deploy/README.md) [c](https://x.example) [d](#e) [`f`](../opatlas)"
    assert linked(text, "client.md", addresses) == (
        "[a](index.md) [b](deploy/README.md) [c](https://x.example) [d](#e) `f`"
    )
    text = "[a](../../docs/client.md) [b](../../DESIGN.md)"
    assert linked(text, "opatlas/plan/README.md", addresses) == "[a](../../client.md) [b](../../DESIGN.md)"


def test_a_table_is_drawn_with_bars() -> None:
    one = {
        "title": "T & U",
        "conditions": "once",
        "columns": ["a", "b"],
        "rows": [["x", 2.0], ["<y>", None], ["z", 1.0]],
    }
    drawn = table(one)
    assert "T &amp; U" in drawn and "<td>&lt;y&gt;</td><td></td>" in drawn
    assert '#8884 100.0%, transparent 0)">2</td>' in drawn and "#8884 50.0%" in drawn


@pytest.mark.parametrize("path", sorted((ROOT / "docs/figures").glob("*.json")), ids=lambda path: path.name)
def test_tables_of_figures_are_whole_and_shown(path: Path) -> None:
    for one in json.loads(path.read_text()):
        assert one.keys() == {"title", "conditions", "columns", "rows"} and one["rows"]
        assert all(len(row) == len(one["columns"]) for row in one["rows"])
    page = (ROOT / "docs/tables.md").read_text()
    assert page.count(f"figures/{path.name}") == 2  # linked, and drawn on the site
    assert "<table>" in with_tables(f"<!-- tables: figures/{path.name} -->")


def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MaxPool float32 16×432×21×21" in (tmp_path / "tables.html").read_text()
    assert 'href="client.html"' in (tmp_path / "index.html").read_text()
