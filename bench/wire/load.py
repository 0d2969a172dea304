"""wrk: as many requests as a server answers, and how long each takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CONNECTIONS = 8
PACED_CONNECTIONS = 256
"""Of a load that is not all there can be: each waits before it asks again, so that many are needed."""

# Requests are made once and sent in turn. `delay` is in whole milliseconds.
_SCRIPT = """
local bodies, paths, at, requests = %(bodies)s, %(paths)s, 0, {}
function init(args)
  wrk.headers["Authorization"] = %(key)s
  for n, path in ipairs(paths) do
    if #bodies > 0 then
      wrk.headers["Content-Type"] = "application/json"
      requests[n] = wrk.format("POST", path, nil, bodies[n])
    else
      requests[n] = wrk.format("GET", path)
    end
  end
end
function request()
  at = at %% #requests + 1
  return requests[at]
end
%(delay)s
function done(summary, latency)
  local said = '\\n{"requests": %%d, "us": %%d, "refused": %%d, "failed": %%d, "p50_us": %%d, "p99_us": %%d}'
  io.write(string.format(said .. '\\n',
    summary.requests, summary.duration, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""
_DELAY = "function delay() return math.floor(-math.log(1 - math.random()) * %f + 0.5) end"


class MissingWrk(Exception):
    """The message says what to install."""


class LoadFigures(NamedTuple):
    rps: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True)
class WireAsks:
    """What is asked, in turn: paths, and for POST a body for each."""

    paths: Sequence[str]
    bodies: Sequence[str] = ()


def find_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise MissingWrk("NOT MEASURED: wrk is missing (apt-get install wrk).")
    return found


def load(url: str, key: str, asked: WireAsks, seconds: float, rps: float = 0.0) -> LoadFigures:
    """All that it answers, or (``rps``) so many a second, at moments drawn by chance. Raises AssertionError
    where anything but 200 is answered."""
    connections = PACED_CONNECTIONS if rps else CONNECTIONS
    script = _SCRIPT % {
        "bodies": _lua(asked.bodies),
        "paths": _lua(asked.paths),
        "key": json.dumps(f"Bearer {key}"),
        "delay": _DELAY % (connections / rps * 1e3) if rps else "",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-s", file.name]
        said = subprocess.run([find_wrk(), *options, url], capture_output=True, text=True, check=True).stdout
    told = json.loads(said.strip().splitlines()[-1])
    assert told["refused"] == told["failed"] == 0, told
    return LoadFigures(told["requests"] / told["us"] * 1e6, told["p50_us"], told["p99_us"])


def _lua(texts: Sequence[str]) -> str:
    """JSON's strings of ASCII are Lua's."""
    return "{" + ", ".join(json.dumps(text) for text in texts) + "}"
