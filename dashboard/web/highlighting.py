"""Schedules and sources, highlighted.

People submit what is shown here. Pygments' lexers for C, C++ and Python take the square of some texts'
length, with the whole process waiting. So code is read by a lexer of few rules, none of which looks back or
further ahead than its own token.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer, RegexLexer, words
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

SHOWN_CHARACTERS = 60_000
"""Longer code is cut on pages: generated kernels reach megabytes, and nobody reads those in a browser."""

_LINEAR = ("json", "diff", "text")
"""Pygments' own, each of which reads a character once or a line at a time."""
_KEYWORDS = re.compile(r"\S+")
_C = _KEYWORDS.findall(
    """alignas alignof auto break case class const constexpr continue default delete do else enum explicit
    extern for friend goto if inline namespace new noexcept operator private protected public register
    restrict return sizeof static static_assert static_cast reinterpret_cast struct switch template this
    throw try typedef typename union using virtual volatile while nullptr true false __global__ __device__
    __shared__ __host__ __launch_bounds__ __restrict__"""
)
_TYPES = _KEYWORDS.findall(
    """void bool char short int long signed unsigned float double half size_t int8_t int16_t int32_t int64_t
    uint8_t uint16_t uint32_t uint64_t i1 i8 i16 i32 i64 f16 f32 f64 bf16 ptr"""
)
_LLVM = _KEYWORDS.findall(
    "define declare call ret br phi load store func module tensor memref attributes target"
)
_SLASHES: list[tuple[Any, ...]] = [(r"//[^\n]*", Comment.Single), (r"/\*", Comment.Multiline, "comment")]
_HASH: list[tuple[Any, ...]] = [(r"#[^\n]*", Comment.Single)]


def _rules(keywords: list[str], comments: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "root": [
            (r"\s+", Text.Whitespace),
            *comments,
            (r'"(?:\\.|[^"\\\n])*"?', String),
            (r"'(?:\\.|[^'\\\n])*'?", String),
            (r"\d[\w.]*", Number),
            (words(keywords, suffix=r"\b"), Keyword),
            (words(_TYPES, suffix=r"\b"), Keyword.Type),
            (r"[^\W\d]\w*", Name),
            (r"""[^\w\s"'/#;]+|.""", Operator),
        ],
        "comment": [
            (r"[^*]+", Comment.Multiline),
            (r"\*/", Comment.Multiline, "#pop"),
            (r"\*", Comment.Multiline),
        ],
    }


class CLikeLexer(RegexLexer):
    """C, C++, CUDA C++, Halide's statements, MLIR."""

    name = "c"
    tokens: ClassVar[Any] = _rules(_C + _LLVM, [(r"#[^\n]*", Comment.Preproc), *_SLASHES])


class PythonLikeLexer(RegexLexer):
    """Python, TVMScript, Triton."""

    name = "python"
    tokens: ClassVar[Any] = _rules(list(keyword.kwlist), [*_HASH, (r"@[\w.]*", Name.Decorator)])


class AssemblyLikeLexer(RegexLexer):
    """LLVM, PTX, assembly: comments begin with a semicolon, a hash or two slashes."""

    name = "assembly"
    tokens: ClassVar[Any] = _rules(_LLVM, [(r"(?:;|#|//)[^\n]*", Comment.Single)])


_LEXERS: dict[str, type[Lexer]] = {
    **dict.fromkeys(("c", "cpp", "cuda"), CLikeLexer),
    "python": PythonLikeLexer,
    **dict.fromkeys(("llvm", "ptx", "gas"), AssemblyLikeLexer),
}


@dataclass(frozen=True)
class Code:
    """Highlighted HTML, the language it was taken for, and how many characters were left out."""

    html: SafeString
    language: str
    cut: int


def highlighted(text: str, language: str = "") -> Code:
    """``text`` as HTML; Pygments escapes it. ``language``: one of those above, where it is known."""
    language = language or language_of(text)
    lexer = (
        get_lexer_by_name(language, stripnl=False)
        if language in _LINEAR
        else _LEXERS[language](stripnl=False)
    )
    html = highlight(text[:SHOWN_CHARACTERS], lexer, HtmlFormatter(nowrap=True))
    return Code(mark_safe(html), language, max(len(text) - SHOWN_CHARACTERS, 0))


def _pygments(language: str) -> Lexer:
    assert language in _LINEAR, language
    return get_lexer_by_name(language, stripnl=False)


def language_of(text: str) -> str:
    """The language of what routes write: JSON recipes, TVMScript, C, C++, LLVM, assembly."""
    head = text[:4000].lstrip()[:2000]
    if head.startswith(("{", "[")):
        return "json"
    if head.startswith("; ModuleID") or "\ndefine " in head or "target triple" in head:
        return "llvm"
    if "#include" in head or "void " in head or 'extern "C"' in head:
        return "cpp" if "std::" in text or "template" in head else "c"
    if "import " in head or "def " in head or "@T." in head or "@I." in head:
        return "python"
    return "gas" if "\t.text" in head else "text"
