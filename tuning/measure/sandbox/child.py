"""What runs in a forked child: one request, then the parent's commands until the socket closes.

Requests come in a memory file (descriptor 0 of the rest), large answers go to another (descriptor 1).
Nothing in here is trusted by the parent: native code of the candidate shares this process.
"""

from __future__ import annotations

import gc
import itertools
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuning.measure.sandbox import wire
from tuning.measure.sandbox.layout import settle_memory
from tuning.measure.sandbox.syscalls import restrict_to_running

if TYPE_CHECKING:
    from opatlas.identity import Operator, Setting, Target

RUN = b"R"
RUN_UNSEEN = b"U"
DONE = b"D"

running_filter = b""
"""What this zygote's children may still ask of the kernel once they run compiled code
(:func:`syscalls.running_template`); empty where nothing more is taken."""


def serve(channel: socket.socket, fds: Sequence[int]) -> None:
    """Do what the request asks for."""
    gc.disable()  # a collection in the middle of a timed batch would be charged to the kernel
    request = wire.read_json(fds[0])
    work = REQUESTS[request["do"]]
    try:
        work(channel, request, fds[1:])
    except (ConnectionError, EOFError):
        raise
    except MemoryError as error:
        wire.send(channel, {"error": f"out of memory: {error}"[:2000], "family": "memory"})
    except Exception as error:
        traceback.print_exc()
        wire.send(channel, {"error": _sentence(error), "family": _family(error)})


def build(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """``route.build`` in the work folder; the artifact's description goes to the reply file."""
    from tuning.routes.base import Candidate

    route = _route(request)
    workdir = _enter(request)
    if "device_bytes" in request:
        from tuning.measure.transfers import OnDeviceInTorch

        OnDeviceInTorch().bound_memory(*request["device_bytes"])
    started = time.perf_counter()
    artifact = route.build(*_about(request), Candidate(**request["candidate"]), workdir)
    answer = {
        "manifest": artifact.manifest.to_json(),
        "folder": str(Path(artifact.folder).resolve().relative_to(workdir.resolve())),
        "schedule": artifact.schedule,
        "source": artifact.source,
        "facts": dict(artifact.facts),
        "build_s": time.perf_counter() - started,
    }
    wire.write_json(fds[0], answer)
    wire.send(channel, {"ok": True})


def tune(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """One slice of ``route.tune``; its candidates go to the reply file, those so far after each."""
    route, workdir = _route(request), _enter(request)
    _report(channel, fds[0], route.tune(*_about(request), workdir, request["seconds"]))


def transfer(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """``route.transfer``: known records as candidates for this operator, reported like a slice's."""
    from tuning.routes.base import SearchRecord

    route, _ = _route(request), _enter(request)
    records = [SearchRecord(**one) for one in request["records"]]
    _report(channel, fds[0], route.transfer(*_about(request), records))


def _about(request: dict[str, Any]) -> tuple[Operator, Target, Setting]:
    from opatlas.identity import Operator, Setting, Target

    return (
        Operator.from_json(request["operator"]),
        Target.from_json(request["target"]),
        Setting.from_json(request["setting"]),
    )


def _report(channel: socket.socket, reply: int, candidates: Iterable[Any]) -> None:
    found: list[dict[str, Any]] = []
    for candidate in candidates:
        found.append(
            {"route": candidate.route, "parameters": dict(candidate.parameters), "label": candidate.label}
        )
        wire.write_json(reply, found)
    wire.write_json(reply, found)
    wire.send(channel, {"ok": True})


def reference(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """Reference outputs of every input set, in float64 where the method allows."""
    from tuning.measure.judging import reference as references

    confirmed_by = references.compute(request, *fds[:3])
    wire.send(channel, {"ok": True, "confirmed_by": confirmed_by})


def disassemble(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """A library's machine code as text and facts, for people."""
    from tuning.measure.machine_code import describe

    wire.write_json(fds[0], describe(_enter(request) / request["library"]))
    wire.send(channel, {"ok": True})


def list_code(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """An artifact's machine code as one bounded text."""
    from tuning.measure.code_listing import listing

    wire.write_json(fds[0], listing(_enter(request) / request["library"]))
    wire.send(channel, {"ok": True})


def kernel(channel: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
    """Load an artifact and obey: a :class:`tuning.measure.bound_kernel.BoundKernel` on the socket."""
    from tuning.measure.bound_kernel import BoundKernel

    _enter(request)
    settle_memory()
    _give_up_what_running_needs_not([channel.fileno(), *fds])
    subject = BoundKernel(request, *fds[:3])
    while True:
        message = channel.recv(wire.MAX_PACKET_BYTES)
        if message[:1] == RUN:
            subject.run(int.from_bytes(message[1:9], "little"))
            channel.send(DONE + message[9:])
        elif message[:1] == RUN_UNSEEN:
            calls, poison, lead_in = message[1:4]
            subject.run_unseen(calls, bool(poison), bool(lead_in), int.from_bytes(message[4:12], "little"))
            channel.send(DONE + message[12:])
        elif not message:
            return
        else:
            wire.send(channel, _obey(subject.obey, message))


def _give_up_what_running_needs_not(needed: Sequence[int]) -> None:
    """Before anything of the artifact is loaded: its constructors run when it is."""
    if not running_filter:
        return
    ends = sorted({0, 1, 2, *needed, (1 << 31) - 1})
    for before, after in itertools.pairwise(ends):
        os.closerange(before + 1, after)
    restrict_to_running(running_filter, os.getpid())


def _obey(command: Callable[[bytes], dict[str, Any]], message: bytes) -> dict[str, Any]:
    try:
        return command(message)
    except MemoryError as error:
        return {"error": f"out of memory: {error}"[:2000], "family": "memory"}
    except Exception as error:
        traceback.print_exc()
        return {"error": _sentence(error), "family": _family(error)}


def _route(request: dict[str, Any]) -> Any:
    """The registry's route, or an instance of the class that the parent names (tests bring their own)."""
    import importlib

    from tuning.routes.registry import ROUTES

    module, _, name = request["factory"].partition(":")
    for known in ROUTES:
        if known.name == request["route"] and type(known).__qualname__ == name:
            return known
    return getattr(importlib.import_module(module), name)()


def _enter(request: dict[str, Any]) -> Path:
    workdir = Path(request["workdir"])
    os.chdir(workdir)
    # Its own, so that nothing that one child leaves is seen by another, or outlives it.
    os.environ["TMPDIR"] = os.environ["HOME"] = str(workdir.parent / "tmp")
    return workdir


def _family(error: Exception) -> str:
    from opatlas.errors import LoadError
    from tuning.routes.base import RouteError

    if isinstance(error, LoadError):
        return "load"
    return "route" if isinstance(error, RouteError) else "other"


def _sentence(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    from opatlas.errors import OpatlasError

    says_itself = isinstance(error, OpatlasError) or _family(error) != "other"
    return (text if says_itself else f"{type(error).__name__}: {text}")[:2000]


REQUESTS: dict[str, Callable[[socket.socket, dict[str, Any], Sequence[int]], None]] = {
    "build": build,
    "tune": tune,
    "transfer": transfer,
    "reference": reference,
    "disassemble": disassemble,
    "list_code": list_code,
    "kernel": kernel,
}
