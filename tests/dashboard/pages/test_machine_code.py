"""Machine code beside source and schedule: shown, folded, downloaded, compared, and why there is none."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from catalog import models as c
from catalog.best.machine_code import keep_code
from dashboard.pages.operators.assembly import MOST_FUNCTIONS, comparable
from tests.dashboard.factory import MACHINE_CODE, Factory


@pytest.fixture
def compiled(catalogue: Factory) -> c.Implementation:
    """The best of a compiler, read."""
    best = c.Best.objects.filter(route="tvm").order_by("pk").first()
    assert best is not None
    return best.implementation


def path_of(row: c.Implementation) -> str:
    return f"/operators/{row.operator.key}/code/{row.pk}/"


def shown(pages: Client, row: c.Implementation) -> str:
    html = pages.get(path_of(row)).content.decode()
    return html.split(f'id="machine-code-{row.pk}"')[1].split("<summary>Candidate")[0]


def test_the_kernels_entry_comes_first_and_the_busiest_loop_is_found(
    pages: Client, compiled: c.Implementation
) -> None:
    html = shown(pages, compiled)
    names = re.findall(r'<summary><code class="break">([^<]+)</code>', html)
    assert names == ["opatlas_run", "conv2d_compute_", "opatlas_prepare"]
    assert f'href="#loop-{compiled.pk}"' in html and html.count(f'id="loop-{compiled.pk}"') == 1
    marked = html.split(f'id="loop-{compiled.pk}">')[1]
    assert marked.startswith("; innermost loop: 6 instructions, 4 of them vector arithmetic")
    assert "The loop with the most vector arithmetic is in" in html and "objdump" in html
    opened = re.findall(r'<details class="more machine"( open)?><summary><code', html)
    assert opened == [" open", " open", ""], "entry and busiest loop; the rest is folded"


def test_it_is_downloaded_whole(pages: Client, compiled: c.Implementation) -> None:
    answer = pages.get(f"{path_of(compiled)}machine_code/raw/")
    assert answer.content.decode() == MACHINE_CODE
    assert answer["Content-Disposition"].endswith('-machine_code.txt"')


def test_the_operators_page_brings_it(pages: Client, compiled: c.Implementation) -> None:
    part = pages.get(path_of(compiled), headers={"HX-Request": "true"}).content.decode()
    assert "conv2d_compute_" in part


def test_names_are_escaped(pages: Client, compiled: c.Implementation) -> None:
    keep_code(compiled, "<script>alert(1)</script>:\n    1000:\t<b>", 2, "objdump", "")
    html = shown(pages, compiled)
    assert "&lt;script&gt;" in html and "<script>" not in html and "<b>" not in html


def test_what_is_cut_says_so(pages: Client, compiled: c.Implementation) -> None:
    many = "\n\n".join(f"f{number}:\n    1000:\tret" for number in range(MOST_FUNCTIONS + 7))
    keep_code(compiled, many, 12_345, "objdump", "")
    html = shown(pages, compiled)
    assert "7 more functions in the raw download." in html
    assert f"It has 12.3k lines; the first {len(many.splitlines())} are kept." in html


@pytest.mark.parametrize("said", ["no code of its own", "Not read yet", "objdump is not installed"])
def test_where_there_is_none_it_says_why(pages: Client, compiled: c.Implementation, said: str) -> None:
    row = compiled
    if "own" in said:
        row = c.Implementation.objects.filter(operator=compiled.operator, route="eager").get()
    elif "yet" in said:
        c.MachineCode.objects.all().delete()
    else:
        c.MachineCode.objects.all().delete()
        keep_code(row, "", 0, "", said)
    assert said in shown(pages, row)
    assert pages.get(f"{path_of(row)}machine_code/raw/").status_code == 404


def test_what_is_withheld_is_not_read_by_rest_either(
    pages: Client, compiled: c.Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dashboard.pages.operators import code

    terms = type("Held", (), {"sentence": "It costs.", "pay_url": "/pay", "withheld": True})()
    monkeypatch.setattr(code, "withheld", lambda *_: terms)
    html = pages.get(path_of(compiled)).content.decode()
    assert "conv2d_compute_" not in html
    assert pages.get(f"{path_of(compiled)}machine_code/raw/").status_code == 402


def test_two_are_compared_without_their_addresses(pages: Client, compiled: c.Implementation) -> None:
    other = c.Implementation.objects.filter(operator=compiled.operator, route="mkl").get()
    c.Implementation.objects.filter(pk=other.pk).update(artifact=compiled.artifact)
    other.refresh_from_db()
    moved = re.sub(r"^    1", "    7", MACHINE_CODE, flags=re.MULTILINE)
    keep_code(other, moved.replace("vzeroupper", "emms"), 30, "objdump", "")
    html = pages.get(f"{path_of(compiled)}?against={other.pk}").content.decode()
    html = html.split("<h3>Machine code</h3>")[1].split("</pre>")[0]
    text = re.sub(r"<[^>]+>", "", html)
    changed = [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line.split() for line in changed] == [["-", "emms"], ["+", "vzeroupper"]]


def test_addresses_are_no_difference() -> None:
    assert comparable("    1030:\tjne    1020 <run+0x20>") == "\tjne    <run>"
