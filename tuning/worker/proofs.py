"""Which routes work in this worker's sandbox: each has built and run one tiny operator, or is not available.

A route is tried at the start or before a contest if that is quick, at its first use, or when there is nothing
else to do. Successes are remembered below the worker's home while nothing changes that could break them, so
that the next start need not repeat them. Failures are tried again by the next process, and after a while by
this one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tuning
from opatlas.identity import Target
from opatlas.identity.operator import canonical_json
from tuning.measure.device.driver_versions import environment_of
from tuning.routes.base import No, Route

REMEMBERED_S = 7 * 86400.0
RETRY_S = 600.0
SLOW = ("inductor",)
"""Its first build in a process takes 12 s, for headers and a runtime that later ones share: never tried at
the start, when somebody may wait for a first result."""
NOT_YET = (
    "It was not tried yet in this worker's sandbox: that is done when it is first used, or nothing else."
)
_PROGRAMS = ("bwrap", "unshare", "setpriv", "setarch", "cc", "g++", "ld")


class Proofs:
    """Of one worker; ``told`` is called after each result. If no proof is ``needed``, every installed route
    works."""

    def __init__(self, home: Path, told: Callable[[], None], *, needed: bool) -> None:
        self._path = home / "proved_routes.json"
        self._told = told
        self._needed = needed
        self._tier = ""
        self._prove: Callable[[Route], str] | None = None
        self._found: dict[str, tuple[str, float]] = {}  # route → its failure, and when that was found

    def begin(self, tier: str, prove: Callable[[Route], str]) -> None:
        """The laboratory has started. ``prove`` returns a route's failure, or nothing; it takes seconds."""
        self._tier, self._prove = tier, prove

    def facts(self, routes: Sequence[Route], target: Target) -> dict[str, dict[str, Any]]:
        """The routes for a worker's row, with reasons for those that are not available."""
        told = {}
        for route in routes:
            answer = route.available(target)
            reason = answer.reason if isinstance(answer, No) else self.reason(route)
            told[route.name] = {
                "available": not reason,
                "reason": reason,
                "versions": environment_of(route, target.kind),
            }
        return told

    def reason(self, route: Route) -> str:
        """Why the route is not available; empty if it is known to work. Tries nothing."""
        if not self._needed:
            return ""
        if self._prove is not None and route.name not in self._found and self._is_remembered(route):
            self._found[route.name] = "", time.monotonic()
        return self._found.get(route.name, (NOT_YET, 0.0))[0]

    def why_not(self, route: Route) -> str:
        """Like :meth:`reason`, but tries a route whose state is unknown (or that failed long ago)."""
        reason = self.reason(route)
        if not reason or self._prove is None:
            return reason
        failure, at = self._found.get(route.name, ("", 0.0))
        if failure and time.monotonic() - at < RETRY_S:
            return failure
        failure = self._prove(route)
        self._found[route.name] = failure, time.monotonic()
        if not failure:
            self._remember(route)
        self._told()
        return failure

    def is_open(self, route: Route) -> bool:
        """Whether its state is unknown."""
        return self.reason(route) == NOT_YET

    def _is_remembered(self, route: Route) -> bool:
        return 0 <= time.time() - self._read().get(self._key(route), 0.0) < REMEMBERED_S

    def _remember(self, route: Route) -> None:
        now = time.time()
        kept = {key: at for key, at in self._read().items() if 0 <= now - at < REMEMBERED_S}
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        beside.write_text(json.dumps({**kept, self._key(route): now}))
        beside.replace(self._path)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._path.read_text())
            return {str(key): float(at) for key, at in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # not there, or nobody's: everything is tried again

    def _key(self, route: Route) -> str:
        """Everything that could break a working route."""
        told = [route.name, dict(route.versions()), self._tier, os.geteuid(), *_machine()]
        return hashlib.sha256(canonical_json(told)).hexdigest()


@cache
def _machine() -> tuple[Any, ...]:
    programs = {name: _stamp(Path(found)) for name in _PROGRAMS if (found := shutil.which(name))}
    folder = Path(tuning.__file__).parent
    code = [
        _stamp(path)
        for room in ("routes", "measure")
        for path in sorted((folder / room).rglob("*.*"))
        if path.suffix in (".py", ".c", ".h")
    ]
    return sys.version, sys.prefix, platform.release(), platform.machine(), programs, code


def _stamp(path: Path) -> list[Any]:
    about = path.stat()
    return [str(path.resolve()), about.st_size, about.st_mtime_ns]
