"""C++ as its preprocessor reads it: what is a comment and what is not.

A source in which that depends on the compiler is refused, so that what is found in the rest is all that a
compiler finds. Linear in the source's length, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuning.routes.base import RouteError

_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<open_comment> /\* )
    | (?P<raw> (?:u8|[uUL])?R" )
    | (?P<literal> (?:u8|[uUL])?(?: "(?:\\[^\n]|[^"\\\n])*" | '(?:\\[^\n]|[^'\\\n])*' ) )
    | (?P<open_literal> ["'] )
    | (?P<literal_at_number> \.?[0-9](?:'?[0-9A-Za-z_.])*+["'] )
    | (?P<number> \.?[0-9](?:'?[0-9A-Za-z_.])* )
    | (?P<word> [A-Za-z_][0-9A-Za-z_]* )
    | (?P<unclear> [$@`] | [^\x00-\x7f] )
    | (?P<other> [^0-9A-Za-z_"'/.$@`\x80-\U0010ffff]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSED = {
    "open_comment": "a comment is not closed",
    "open_literal": "a quotation mark is not closed on its line",
    "literal_at_number": "a quotation mark stands at a number: write a blank between",
    "unclear": "outside of comments and texts only ASCII is taken, without $, @ and `",
    "raw": "raw strings are not taken: write an ordinary one",
}
_SPLICE = re.compile(r"\\\n")
_UNCLEAR = (
    (re.compile(r"\?\?[=/]"), "trigraphs are not taken: write the character itself"),
    (re.compile(r"\\[ \t\v\f]+\n"), "a backslash stands before blanks at a line's end: remove the blanks"),
    (re.compile(r"[\r\x00\x85\u2028\u2029]"), "lines end with a line feed alone"),
)


def without_comments(source: str) -> str:
    """The source in its logical lines, each comment a blank. Raises :class:`RouteError` with why not."""
    text = source.replace("\r\n", "\n")
    for unclear, why in _UNCLEAR:
        if unclear.search(text):
            raise RouteError(why)
    return "".join(_code(_SPLICE.sub("", text)))


def _code(text: str) -> Iterator[str]:
    for token in _TOKEN.finditer(text):
        if why := _REFUSED.get(token.lastgroup or ""):
            raise RouteError(why)
        yield " " if token.lastgroup == "comment" else token[0]
