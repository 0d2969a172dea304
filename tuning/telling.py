"""What is told of an error to those who asked: a sentence. The traceback is the log's."""

from __future__ import annotations

from opatlas.errors import OpatlasError, first_line, without_paths, without_traces


def told(error: BaseException, held: object) -> str:
    """One sentence of what stopped the work on ``held``, as the log calls it.

    An error that we raise on purpose says itself what is wrong. Of any other its text means nothing to a
    caller: who runs the service finds it, with its traceback, in the log.
    """
    if isinstance(error, OpatlasError):
        return first_line(error, 1000)
    kind = type(error).__name__
    return f"An internal error stopped it ({kind}); who runs this service finds it in the log under {held}."


def told_log(text: str) -> str:
    """A program's output without tracebacks, and without where things lie on this machine."""
    return without_paths(without_traces(text)).strip()
