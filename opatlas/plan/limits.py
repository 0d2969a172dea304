"""Time limits for what a session runs first. ONNX Runtime ends a run between two nodes when it is told to;
whoever cannot be told is left, in a thread whose result nobody takes."""

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
    """What was ended, or left, when its time was over."""


@contextmanager
def ended_after(seconds: float) -> Iterator[ort.RunOptions]:
    """Options of a run of ONNX Runtime's that ends with an error once so many seconds have passed; loops end
    between two of their nodes, one node is never cut."""
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
    """What a session of ONNX Runtime's gives. Raises :class:`TookTooLong`, and what it raises itself."""
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
    """What ``call`` gives or raises. It runs in a thread of its own: where it has not ended after so many
    seconds, :class:`TookTooLong` is raised, and the thread goes on; ``late`` is then given what it makes, to
    let go of it. ``does``: what it did not do in time, in words."""
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
