"""How large a caller's operator may be, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from opatlas.errors import InvalidOperator, UnmappedOperator

MAX_RANK = 8
MAX_DIM = 1 << 31
MAX_ELEMENTS = 1 << 40
MAX_NODES = 256
"""Of one operator: whoever sends a graph has its key made within a request, at more than a millisecond a node
(docs/plans.md has what was measured, and what becomes of larger target subgraphs)."""
MAX_INPUTS = 1024
MAX_PORTS = 256  # of one node
MAX_STATIC = 4096  # elements of one static input
MAX_ATTRIBUTE_ITEMS = 4096
MAX_TEXT = 1024  # characters of a name or of a text attribute
MAX_ONNX_BYTES = 1 << 20
MAX_JSON_DEPTH = 32
OLDEST_OPSET = 7
NEWEST_OPSET = 28


def refusal(message: str, where: str = "") -> InvalidOperator:
    """The error to raise; ``where`` points into the caller's document (``inputs[0].shape``)."""
    error = InvalidOperator(message)
    error.where = where
    return error


def refuse(message: str, where: str = "") -> NoReturn:
    """Raise :func:`refusal`."""
    raise refusal(message, where)


def refuse_unmapped(message: str, where: str = "") -> NoReturn:
    """Raise :class:`opatlas.errors.UnmappedOperator`: it may run, but no entry can be of it."""
    error = UnmappedOperator(message)
    error.where = where
    raise error


def check_shape(shape: Sequence[int], what: str, where: str = "") -> None:
    """Refuse a shape that no tensor here may have. ``what`` names the tensor in the sentence."""
    if len(shape) > MAX_RANK:
        refuse_unmapped(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} are allowed.", where)
    elements = 1
    for dim in shape:
        if not 1 <= dim <= MAX_DIM:
            say = refuse if dim < 0 else refuse_unmapped
            say(f"{what} has a dimension of {dim}; each must be from 1 to {MAX_DIM}.", where)
        elements *= dim
    if elements > MAX_ELEMENTS:
        refuse_unmapped(f"{what} has {elements} elements; at most {MAX_ELEMENTS} are allowed.", where)


def check_opset(opset: int) -> None:
    """Refuse an opset older or newer than what can be brought to the canonical one."""
    if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        refuse(f"Opset {opset} is not known here; give one from {OLDEST_OPSET} to {NEWEST_OPSET}.", "opset")


def quoted(value: object) -> str:
    """A caller's value as it may stand in a sentence."""
    try:
        return shown(repr(value))
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list of thousands of levels
        return f"a huge {type(value).__name__}"


def shown(text: object, limit: int = 80) -> str:
    """A caller's word as it may stand in a sentence: one line, bounded."""
    clean = "".join(character if character.isprintable() else "?" for character in str(text)[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "…"
