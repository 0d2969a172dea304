"""Documents stay short, and so do their sentences.

``HELD`` has every page that is held, with its bound in bytes. A page is added by a line.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.docs.links import ROOT, of_packages

MEDIAN_WORDS, P90_WORDS = 16, 28
ROOM_BYTES = 6_000

HELD: dict[str, int] = {
    "README.md": 12_000,
    "DESIGN.md": 25_000,
    "CHANGELOG.md": 10_000,
    "deploy/README.md": 8_000,
    "bench/README.md": ROOM_BYTES,
    "tests/README.md": ROOM_BYTES,
    "docs/pages/README.md": 4_000,
    "docs/accuracy.md": 17_000,
    "docs/changing.md": 9_500,
    "docs/cheats.md": 19_000,
    "docs/choices.md": 5_000,
    "docs/client.md": 19_000,
    "docs/compared.md": 8_500,
    "docs/configuration.md": 15_000,
    "docs/contest.md": 12_000,
    "docs/figures.md": 15_000,
    "docs/g1.md": 7_500,
    "docs/g4.md": 9_500,
    "docs/gpu.md": 14_500,
    "docs/kernels.md": 10_000,
    "docs/measuring.md": 10_000,
    "docs/models.md": 18_000,
    "docs/onnxruntime.md": 7_000,
    "docs/operation.md": 18_500,
    "docs/plans.md": 25_000,
    "docs/protocol.md": 17_000,
    "docs/pytorch.md": 5_500,
    "docs/semantics.md": 9_000,
    "docs/service.md": 7_000,
    "docs/stories.md": 5_000,
    "docs/tables.md": 2_000,
    "docs/webhooks.md": 5_500,
}
"""The most bytes of each page."""

ROOMS = sorted({str(path.relative_to(ROOT)) for path in of_packages()} - HELD.keys())
"""Why a package is as it is, beside its code."""

PAGES = {**HELD, **dict.fromkeys(ROOMS, ROOM_BYTES)}

_NO_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) +")
_END = re.compile(r"(?<=[.?!])[\"”’)*]*\s+(?=[\"“(*_`\[]*[A-Z0-9`/])")


def paragraphs(text: str) -> tuple[list[str], list[str]]:
    """Of a page in Markdown: its paragraphs and items, and the cells of its tables. No code, no headings."""
    running: list[str] = [""]
    cells: list[str] = []
    for line in _NO_PROSE.sub("\n\n", text).splitlines():
        if line.lstrip().startswith("|"):
            if not re.fullmatch(r"[|:\s-]+", line):
                cells += [cell.strip() for cell in re.split(r"(?<!\\)\|", line) if cell.strip()]
        elif not line.strip() or line.startswith(("#", "![")):
            running.append("")
        elif _ITEM.match(line):
            running.append(_ITEM.sub("", line))
        else:
            running[-1] += f" {line}"
    return [one for one in running if one.strip()], cells


def sentence_lengths(texts: list[str]) -> list[int]:
    """In words. What stands between backticks is one word, and so is a link's address none."""
    plain = [re.sub(r"`[^`]*`", "Code", re.sub(r"\]\([^)]*\)", "]", text)) for text in texts]
    sentences = [one for text in plain for one in _END.split(text)]
    return [count for one in sentences if (count := len(re.findall(r"[^\W_][\w'’.,/–-]*", one)))]


def too_long(lengths: list[int]) -> str:
    """What is wrong, in words; nothing where the sentences are short enough."""
    if len(lengths) < 2:
        return ""
    middle, ninth = median(lengths), quantiles(lengths, n=10, method="inclusive")[8]
    if middle <= MEDIAN_WORDS and ninth <= P90_WORDS:
        return ""
    return f"sentences of {middle:g} words in the median, {ninth:g} in the 90th percentile"


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    running, cells = paragraphs((ROOT / page).read_text())
    assert not (wrong := too_long(sentence_lengths(running))), wrong
    assert not (wrong := too_long(sentence_lengths(cells))), f"in tables: {wrong}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_grows_beyond_its_bound(page: str) -> None:
    assert (ROOT / page).stat().st_size <= PAGES[page]


@pytest.mark.parametrize("page", ROOMS)
def test_files_that_a_room_names_exist(page: str) -> None:
    """``odds.py`` or ``race/`` between backticks is of that folder or of the whole tree."""
    folder = (ROOT / page).parent
    text = _NO_PROSE.sub("", (ROOT / page).read_text())
    named = set(re.findall(r"`(\w[\w./-]*(?:\.(?:py|c|h|json|md)|/))`", text))
    assert not [name for name in named if not _exists(folder, name)]


def _exists(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (ROOT / name).exists()


def test_long_sentences_are_found() -> None:
    short, long = "It runs. " * 9, "One " + "more " * 30 + "word."
    assert not too_long(sentence_lengths([short]))
    assert too_long(sentence_lengths([short, long, long])) == (
        "sentences of 2 words in the median, 32 in the 90th percentile"
    )
    assert too_long(sentence_lengths(["A sentence of " + "many " * 14 + "words."] * 2))


def test_what_is_read_is_prose() -> None:
    text = (
        "# A heading\nOne line\nand its next.\n- an item of `some long code` and [a link](far/away.md)\n\n"
        "```sh\nmake run\n```\n| a | b |\n| --- | --: |\n| one cell | 2 |\n<!-- no\nprose -->\n"
    )
    running, cells = paragraphs(text)
    assert running == [" One line and its next.", "an item of `some long code` and [a link](far/away.md)"]
    assert cells == ["a", "b", "one cell", "2"]
    assert sentence_lengths(running) == [5, 7]
    assert sentence_lengths(["See `a.py`. Then go on (2 or 3). `b` follows."]) == [2, 6, 2]
