"""The two families of errors that a job can meet, and what is told of a library's."""

from __future__ import annotations

import re

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What code that takes something apart raises where that has another form than it expects."""

_FLAG = r"(?<=[\s'\"]-[BILF])|(?<=^-[BILF])|(?<=-isystem)"
"""What a compiler's folders are written after without a blank."""
_PATH = re.compile(rf"(?:(?<![\w./@<-])|{_FLAG})/(?:[^\s/:'\"()<>,;|]+/)+([^\s/:'\"()<>,;|]*)")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_C_SOURCE = re.compile(r"(?<![^\s:('\"])/\S+\.(?:h|hpp|cc|cpp):\d+ [^)]*\)(?: const)?(?: \[with [^\]]*\])? ")
_FRAME = re.compile(r"^\s*File \".*\", line \d+")
_BETWEEN = ("During handling of the above exception", "The above exception was the direct cause")


def first_line(error: BaseException, most: int = 300) -> str:
    """The first line of a library's error that says anything, of ``most`` characters, without where it lies
    on this machine; else its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # What is searched is cut before: a line may be megabytes long.
    line = (lines or [type(error).__name__])[0][: 4 * most]
    return without_paths(_C_SOURCE.sub("", _CODE.sub("", line)))[:most]


def without_paths(text: str) -> str:
    """Absolute paths of files as their last part: where things lie on a machine is no caller's business."""
    return _PATH.sub(lambda found: found[1] or "…", text)


def without_traces(text: str) -> str:
    """A log with the last line of each Python traceback in the traceback's place."""
    kept: list[str] = []
    within = False
    for line in text.splitlines():
        if "Traceback (most recent call last)" in line or _FRAME.match(line):
            within = True  # the first lines of a log's tail may lie in the middle of one
        elif within and (not line.strip() or line[0] in " \t"):
            continue
        elif not line.startswith(_BETWEEN):
            within = False
            kept.append(line)
    return "\n".join(kept)


def printable(text: str, most: int = 300) -> str:
    """Somebody else's text in one line, of ``most`` characters that can be shown."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:most]


class OpatlasError(Exception):
    """Base of everything that Opatlas raises on purpose. ``str()`` is one clear sentence."""


class CallerError(OpatlasError):
    """The caller's fault: says what is wrong and what would be right. Nothing was changed.

    ``where`` points into the caller's document (``inputs[0].shape``) where that is known.
    """

    where: str = ""


class InvalidOperator(CallerError):
    """An operator that cannot be: unknown type, contradictory shapes, wrong dtype, out of bounds."""


class UnmappedOperator(InvalidOperator):
    """An operator that may well run, but that no entry can be of: an empty batch, a type that ONNX's operator
    does not take, more elements or dimensions than entries have, a size that the values decide. A job's
    client answers empty with this sentence."""


class InvalidTarget(CallerError):
    """A target or a setting that cannot be."""


class InvalidModel(CallerError):
    """A model that cannot be read: truncated, hostile, or with dimensions that are not given."""


class LoadError(OpatlasError):
    """An artifact that cannot be loaded here; says which need is not met."""
