"""First runs that may never end: in a thread that is left, and compilers that are ended.

A thread that is left goes on until what it waits for ends; nobody reads what it makes.
"""

from __future__ import annotations

import contextvars
import functools
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, TypeVar

import torch

from opatlas.errors import OpatlasError

Made = TypeVar("Made")
DEVICES = ("cpu", "cuda")
"""Whose autocast a thread takes over."""

_limits: list[float] = []
"""Seconds that a compiler's process has, of all that compile now."""
_lock = Lock()


class TryTookTooLong(OpatlasError):
    """Who was given so many seconds has not ended."""


def within(limit_s: float, run: Callable[[], Made]) -> Made:
    """What ``run`` gives or raises, in a thread with this one's modes; :class:`TryTookTooLong` after so many
    seconds, and the thread is left."""
    ended, made, failed = Event(), list[Made](), list[BaseException]()
    enter = _modes()

    def work() -> None:
        try:
            with enter():
                made.append(run())
        except BaseException as error:  # whose it is says who waits
            failed.append(error)
        finally:
            ended.set()

    context = contextvars.copy_context()  # PyTorch's settings that are patched for a while
    Thread(target=context.run, args=(work,), name="opatlas-first-run", daemon=True).start()
    if not ended.wait(limit_s):
        raise TryTookTooLong(f"it had not ended after {limit_s:g} s")
    if failed:
        raise failed[0]
    return made[0]


def _modes() -> Callable[[], Any]:
    """How this thread computes, to be entered in another one, which ends with it."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    threads, caches = torch.get_num_threads(), torch.is_autocast_cache_enabled()
    casts = [(one, torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in DEVICES]

    @contextmanager
    def enter() -> Iterator[None]:
        torch.set_num_threads(threads)
        torch.set_autocast_cache_enabled(caches)
        for device, enabled, dtype in casts:
            torch.set_autocast_dtype(device, dtype)
            torch.set_autocast_enabled(device, enabled)
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            yield

    return enter


@contextmanager
def compilers_end(limit_s: float) -> Iterator[None]:
    """A C++ compiler that Inductor starts meanwhile, in whatever thread, is ended after so many seconds."""
    _install()
    with _lock:
        _limits.append(limit_s)
    try:
        yield
    finally:
        with _lock:
            _limits.remove(limit_s)


@functools.cache
def _install() -> None:
    """PyTorch waits for its compiler without a limit, and has no setting for one."""
    from torch._inductor import cpp_builder

    unlimited = cpp_builder._run_compile_cmd

    def compile_limited(cmd_line: str, cwd: str) -> None:
        with _lock:
            limit_s = min(_limits, default=None)
        if limit_s is None:
            unlimited(cmd_line, cwd)
        else:
            _compile(shlex.split(cmd_line), cwd, limit_s)

    cpp_builder._run_compile_cmd = compile_limited


def _compile(command: list[str], cwd: str, limit_s: float) -> None:
    from torch._inductor.exc import CppCompileError

    # A session of its own: a compiler is several processes, which are ended together.
    started = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        said, _ = started.communicate(timeout=limit_s)
    except BaseException as error:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TryTookTooLong(f"the compiler had not ended after {limit_s:g} s") from None
        raise
    if started.returncode:
        raise CppCompileError(command, said.decode(errors="replace"))
