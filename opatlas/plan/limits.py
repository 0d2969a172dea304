"""Time limits for a session's first runs. ONNX Runtime can be told to stop between two nodes. Anything else
goes on in a thread whose result is dropped."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import onnxruntime as ort

from opatlas.errors import LoadError

T = TypeVar("T")


class TookTooLong(LoadError):
    """A call was ended, or left behind, at its time limit."""


@contextmanager
def ended_after(seconds: float) -> Iterator[ort.RunOptions]:
    """Options with which a run of ONNX Runtime fails after so many seconds. Loops stop between nodes; a node
    is never cut."""
    options = ort.RunOptions()
    if seconds == math.inf:
        yield options
        return
    timer = threading.Timer(seconds, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


def run_within(
    session: Any, outputs: Sequence[str] | None, feed: Mapping[str, Any], seconds: float
) -> list[Any]:
    """Run a session of ONNX Runtime. Raises :class:`TookTooLong`, and what the session raises."""
    with ended_after(seconds) as options:
        try:
            made: list[Any] = session.run(outputs, dict(feed), options)
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            if options.terminate:
                raise TookTooLong(f"ONNX Runtime did not end within {seconds:g} s") from error
            raise
    return made


def within(
    seconds: float, call: Callable[[], T], late: Callable[[T], object] = lambda made: None, does: str = "end"
) -> T:
    """Run ``call`` in a thread of its own, and return or raise what it does. After so many seconds
    :class:`TookTooLong` is raised and the thread goes on; ``late`` then gets its result, to release it.
    ``does``: what it did not do in time, for the message."""
    done, lock, is_left = threading.Event(), threading.Lock(), False
    made: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(call())
        except BaseException as error:  # whoever waits raises it
            failed.append(error)
        with lock:
            done.set()
            unwanted = made if is_left else []
        for one in unwanted:
            late(one)

    threading.Thread(target=run, daemon=True, name="opatlas-limited").start()
    done.wait(seconds)
    with lock:
        is_left = not done.is_set()
    if is_left:
        raise TookTooLong(f"it did not {does} within {seconds:.3g} s")
    if failed:
        raise failed[0]
    return made[0]
