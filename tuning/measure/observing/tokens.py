"""The tokens of a C or C++ source, as a compiler would read them. PURE, and in time linear in the source:
whoever submits one must not be able to hold up who reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A text that its line does not close ends there, and a raw one with the source: looking for the end of each
# anew would take the square of the time.
_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<raw> (?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\((?:.*?\)(?P=fence)"|.*) )
  | (?P<text> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*(?:"|\\?$) )
  | (?P<letter> [uUL]?'(?:\\.|[^'\\\n]){0,64}' )
  | (?P<include> ^[ \t]*\#[ \t]*include[^\n]* )
  | (?P<name> [^\W\d]\w* )
  | (?P<number> \.?\d(?:[eEpP][+-]|'\w|[\w.])* )
  | (?P<line> \n )
  | (?P<blank> [^\S\n]+ )
  | (?P<mark> <<=|>>=|\.\.\.|->\*|<=>|\+\+|--|->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\#\#|. )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def tokens_of(source: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each, blanks and comments too, line splices undone: together they are the source."""
    joined = source.replace("\\\r\n", "").replace("\\\n", "").replace("\r\n", "\n")
    for match in _TOKEN.finditer(joined):
        yield match.lastgroup or "", match.group()
