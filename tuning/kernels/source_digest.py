"""Two digests of a source: of its bytes, and of its tokens, which survives trivial edits. PURE.

The second leaves out comments, blanks and line splices, and calls every name that the source itself brings
by its number: a caught source does not pass as new under other names. It keeps what a name means to others:
keywords, functions that the source calls and does not define, names of the system and of our interface.
Two sources that compute differently have different digests; one that is rewritten has one of its own too.
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise

from tuning.measure.observing.tokens import tokens_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words(
    "alignas alignof asm auto bool break case catch char class const constexpr continue "
    "decltype default delete do double else enum explicit extern false float for friend "
    "goto if inline int long mutable namespace new noexcept nullptr operator private "
    "protected public register restrict return short signed sizeof static static_assert "
    "static_cast reinterpret_cast const_cast struct switch template this thread_local "
    "throw true try typedef typename union unsigned using virtual void volatile while "
    "define undef ifdef ifndef elif endif pragma error line defined std main"
)
_FOREIGN = re.compile(r"_\w*|opatlas_\w*|\w+_t|(?:IN|OUT|DATA|NODE)\d\w*|(?:ATTR|OPATLAS)_\w*")


def source_digest(source: str) -> str:
    """SHA-256 of the very bytes."""
    return hashlib.sha256(source.encode()).hexdigest()


def tokens_digest(source: str) -> str:
    """SHA-256 of the tokens, with the source's own names numbered by their first use."""
    tokens = _tokens(source)
    own = _own_names(tokens)
    numbers: dict[str, str] = {}
    said = [
        numbers.setdefault(text, f"${len(numbers)}") if kind == "name" and text in own else text
        for kind, text in tokens
    ]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _tokens(source: str) -> list[tuple[str, str]]:
    """Kind and text; a line's end only where it ends a directive, in which it has a meaning."""
    found: list[tuple[str, str]] = []
    directive, at_start = False, True
    for kind, text in tokens_of(source):
        if kind == "line":
            if directive:
                found.append(("end", ""))
            directive, at_start = False, True
        elif kind == "include":
            found.append((kind, re.sub(r"\s+|//.*|/\*.*?(?:\*/|$)", "", text)))
        elif kind not in ("comment", "blank"):
            directive = directive or (at_start and text == "#")
            at_start = False
            found.append((kind, text))
    return found


def _own_names(tokens: list[tuple[str, str]]) -> frozenset[str]:
    """Names that mean nothing to anybody else: all but keywords, the system's and our interface's names,
    functions that are called and not defined, and macros that are used and not defined."""
    texts = [text for _, text in tokens]
    names = {text for kind, text in tokens if kind == "name"}
    defined = {texts[i + 2] for i in range(len(texts) - 2) if texts[i] == "#" and texts[i + 1] == "define"}
    defined |= _with_body(texts)
    called = {one for one, after in pairwise(texts) if after == "("}
    foreign = {name for name in names - defined if name in called or _is_macro(name)}
    return frozenset(
        name for name in names - foreign if name not in _KEYWORDS and not _FOREIGN.fullmatch(name)
    )


def _with_body(texts: list[str]) -> set[str]:
    """Names followed by parentheses and then a brace: functions that the source defines."""
    found: set[str] = set()
    opened: list[str] = []  # what stands before each parenthesis that is open
    for before, text, after in zip(["", *texts], texts, [*texts[1:], ""], strict=False):
        if text == "(":
            opened.append(before)
        elif text == ")" and opened and (name := opened.pop()).isidentifier() and after == "{":
            found.add(name)
    return found


def _is_macro(name: str) -> bool:
    return name.isupper() and len(name) > 2
