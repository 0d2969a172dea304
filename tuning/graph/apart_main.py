"""The child that takes an upload apart. Runs inside the sandbox. PURE.

``python -m tuning.graph.apart_main <wish JSON>``: reads the upload from its standard input, writes what it
came to as JSON to its standard output: ``{"refused": "<one sentence>"}``, or what the wish's kind gives. It
bounds itself before it reads a byte; the parent bounds its wall-clock time.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tuning.measure.sandbox.confine import confine

MOST_WISH_BYTES = 64 << 10
"""Of the other fields beside a structure and a profile in a request for a plan."""
NO_ROOM = os.EX_IOERR
"""The exit status if its answer has no room; the reader then checks the disk itself."""
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    wish = json.loads(sys.argv[1])
    if plan := os.environ.pop("OPATLAS_CONFINE", ""):
        confine(json.loads(plan))
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _bound(wish)
    try:
        _write(json.dumps(_answer(wish), separators=(",", ":")).encode())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(NO_ROOM)


def _write(answer: bytes) -> None:
    """Write all of it: on a nearly full disk a part would be written without an error."""
    left = memoryview(answer)
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]


def _bound(wish: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    for what, most in (
        (resource.RLIMIT_AS, wish["memory_bytes"]),
        (resource.RLIMIT_CPU, wish["cpu_s"]),
        (resource.RLIMIT_FSIZE, wish["answer_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        # The system sends SIGXCPU at the lower one, and would kill without a word at the upper.
        resource.setrlimit(what, (most, most + 1 if what == resource.RLIMIT_CPU else most))


def _answer(wish: Mapping[str, Any]) -> dict[str, Any]:
    from opatlas.errors import CallerError

    try:
        return KINDS[wish["kind"]](sys.stdin.buffer.read(), wish)
    except CallerError as error:
        return {"refused": str(error)[:1000]}
    except RecursionError:
        return {"refused": "It is nested too deeply."}
    except MemoryError:
        return {"refused": f"Taking it apart needs more than {wish['memory_bytes'] >> 20} MiB of memory."}


def _model(data: bytes, wish: Mapping[str, Any]) -> dict[str, Any]:
    from tuning.graph.apart import take_apart

    return take_apart(data, wish["dims"], wish["as_float32"], max_nodes=wish["nodes"]).to_json()


def _plan(data: bytes, wish: Mapping[str, Any]) -> dict[str, Any]:
    """A request for a plan: its structure, checked and packed, its profile, checked, and the other fields."""
    from opatlas.errors import InvalidModel
    from opatlas.graph.profile import ModelProfile
    from opatlas.graph.structure import ModelStructure

    try:
        asked = json.loads(data)
    except ValueError as error:
        raise InvalidModel(f"The request for a plan is no valid JSON: {error}.") from None
    if not isinstance(asked, dict):
        raise InvalidModel("A request for a plan is a JSON object with a model or a structure.")
    given, profile = asked.pop("structure", None), asked.pop("profile", None)
    if len(json.dumps(asked)) > MOST_WISH_BYTES:
        raise InvalidModel(f"Beside its structure a request for a plan has at most {MOST_WISH_BYTES} bytes.")
    if profile is not None:
        asked["profile"] = ModelProfile.from_json(profile).to_json()
    structure = None if given is None else ModelStructure.from_json(given).packed()
    return {"asked": asked, "structure": structure and base64.b64encode(structure).decode()}


KINDS: Mapping[str, Callable[[bytes, Mapping[str, Any]], dict[str, Any]]] = {"model": _model, "plan": _plan}

if __name__ == "__main__":
    main()
