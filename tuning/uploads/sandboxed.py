"""A child in a sandbox of its own takes an upload apart, within CPU time, memory and wall-clock time."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalog import failpoints
from opatlas.errors import CallerError, OpatlasError
from tuning.conf import conf
from tuning.graph.apart_main import NO_ROOM
from tuning.measure import procfs
from tuning.measure.sandbox.walls import SHOWN_INSIDE, Walls, standing

logger = logging.getLogger(__name__)

ANSWER_BYTES = 64 << 20
PROCESSES = 64
ROOM_BYTES = 1 << 16
"""Where so many can be written, the disk is not full."""
LOOK_S, ASK_S = 0.02, 0.5
"""Between two looks at the child, and at whether it is to go on."""
_LIBC = ctypes.CDLL(None)  # loaded here: nothing may be imported between fork and exec
_PR_SET_PDEATHSIG = 1


class UploadRefused(CallerError):
    """An upload that cannot be taken apart: says why, in one sentence."""


class ApartFailed(OpatlasError):
    """What takes uploads apart came to no end, and not by what was uploaded: it is tried again."""


def take_apart(
    body: Path, wish: Mapping[str, Any], tier: str, folder: Path, go_on: Callable[[], None]
) -> dict[str, Any]:
    """What ``tuning.graph.apart_main`` makes of the bytes in ``body``: somebody else's JSON.

    ``tier``: of the sandbox; ``folder``: an empty one, for this alone; ``go_on`` raises where it must not.
    Raises :class:`UploadRefused` for what the child refuses and for what ends the child. What is not the
    upload's fault: :class:`ApartFailed`, and OSError where the disk is full.
    """
    bounds = {
        "memory_bytes": conf().upload_memory_mib << 20,
        "cpu_s": int(conf().upload_cpu_s),
        "answer_bytes": ANSWER_BYTES,
        "nodes": conf().upload_nodes,
    }
    work, answer = folder / "work", folder / "answer"
    work.mkdir()
    with standing(tier, "native", work) as walls:
        walls.give(work)
        if walls.group is not None:
            walls.group.limit(bounds["memory_bytes"], PROCESSES)
        ended = _run(
            walls, ["-m", "tuning.graph.apart_main", json.dumps({**wish, **bounds})], body, answer, go_on
        )
        for_memory = walls.group is not None and walls.group.killed_for_memory() > 0
    if ended != 0:
        go_on()  # what a stopping worker kills is nobody's fault
        if ended == NO_ROOM:
            (folder / "room").write_bytes(bytes(ROOM_BYTES))  # a full disk says so itself
            raise ApartFailed("Its answer found no room.")
        if ended == -signal.SIGKILL and not for_memory:
            raise ApartFailed("It was killed from outside, as by a machine without memory.")
        said = (folder / "log").read_bytes()[-2000:].decode(errors="replace").strip()
        logger.warning("What takes an upload apart ended with %d: %s", ended, said or "nothing said")
        raise UploadRefused(_why(ended))
    found: dict[str, Any] = json.loads(answer.read_bytes())
    if "refused" in found:
        raise UploadRefused(str(found["refused"])[:1000])
    return found


def _run(walls: Walls, inner: Sequence[str], body: Path, answer: Path, go_on: Callable[[], None]) -> int:
    """The child's exit status; 0 less a signal's number where it was ended by one, here too."""
    with body.open("rb") as given, answer.open("wb") as taken, answer.with_name("log").open("wb") as log:
        child = subprocess.Popen(
            walls.command(inner), env=walls.environment(), cwd=walls.work, stdin=given, stdout=taken,
            stderr=log, pass_fds=walls.files, start_new_session=True, preexec_fn=_die_with_worker,
            umask=SHOWN_INSIDE,
        )  # fmt: skip
        try:
            failpoints.at("taking-apart")
            return _watched(child, go_on)
        finally:
            _kill(child)


def _die_with_worker() -> None:
    """In the child. Without it, what a killed worker began would go on, and nobody would end it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watched(child: subprocess.Popen[bytes], go_on: Callable[[], None]) -> int:
    until, asked = time.monotonic() + conf().upload_s, time.monotonic()
    while (code := child.poll()) is None:
        now = time.monotonic()
        if now > until:
            raise UploadRefused(f"Taking it apart took longer than {conf().upload_s:.0f} s.")
        if now - asked >= ASK_S:
            asked = now
            go_on()
        time.sleep(LOOK_S)
    return 128 - code if code > 128 else code  # as a shell says it: bubblewrap does


def _kill(child: subprocess.Popen[bytes]) -> None:
    for pid in procfs.family(child.pid):
        procfs.kill(pid)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _why(ended: int) -> str:
    if ended == -signal.SIGXCPU:
        return f"Taking it apart needs more than {conf().upload_cpu_s:.0f} s of a processor."
    if ended == -signal.SIGXFSZ:
        return f"What it comes to has more than {ANSWER_BYTES >> 20} MiB."
    if ended == -signal.SIGKILL:
        return f"Taking it apart needs more than {conf().upload_memory_mib} MiB of memory."
    how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
    return f"It broke what takes uploads apart ({how}): export it again, or send another form of it."
