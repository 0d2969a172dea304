"""Submitted text is highlighted in a time that it cannot choose."""

from __future__ import annotations

import time

import pytest

from dashboard.web.highlighting import SHOWN_CHARACTERS, highlighted, language_of
from tests import by_day

LANGUAGES = ("c", "cpp", "cuda", "python", "llvm", "ptx", "gas", "json", "diff", "text")
PIECES = (
    "\n",
    " ",
    "\t",
    "/*",
    "//",
    '"',
    "'",
    '"""',
    "\\",
    "#",
    "a\n",
    "a ",
    ";",
    "(",
    "{",
    "[",
    "1",
    "::",
    '{"a":',
)


@pytest.mark.parametrize("language", by_day.first(4, LANGUAGES))
def test_no_text_takes_the_square_of_its_length(language: str) -> None:
    """60,000 blanks as C took Pygments' own lexer minutes, with the whole process waiting."""
    for piece in PIECES:
        began = time.thread_time()
        highlighted(piece * (SHOWN_CHARACTERS // len(piece)), language)
        assert time.thread_time() - began < 5, piece


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_shown_is_the_text_and_no_markup_of_it(language: str) -> None:
    text = '#include <a>\nint f() { return "</pre><script>"; } /* <b> */ // <i>\n' * 3
    shown = highlighted(text, language)
    assert "<script>" not in shown.html and "<b>" not in shown.html and "<i>" not in shown.html
    assert (shown.language, shown.cut) == (language, 0)


def test_code_reads_as_code() -> None:
    html = highlighted('#include "x.h"\n/* a */ static int f(float x) { return 2.5f * x; } // b\n', "c").html
    for css, text in (("cp", "#include"), ("cm", "/* a */"), ("k", "static"), ("kt", "float"), ("m", "2.5f")):
        assert f'<span class="{css}">{text}' in html, (css, html)
    python = highlighted("@T.prim_func\ndef main(a: T.handle):  # c\n    return None\n").html
    assert '<span class="k">def</span>' in python and '<span class="c1"># c</span>' in python


def test_the_language_is_guessed_from_the_beginning() -> None:
    assert language_of(" " * 100_000 + "#include") == "text"
    assert language_of("#include <a>\nstd::vector<int> x;") == "cpp"
