"""Routes for tests of building and tuning; importable inside the sandbox."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from opatlas.identity import Operator, Setting, Target
from tests.tuning.measure.kernels import c_artifact
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Method, RouteError, Yes


class Obedient:
    """Builds what ``parameters["do"]`` says, in a child of a zygote that has compilers."""

    name = "obedient"
    method: Method = "manual"
    zygote = "cpp"
    preload: ClassVar[tuple[str, ...]] = ()
    builds_in_process = False

    def versions(self) -> Mapping[str, str]:
        return {}

    def available(self, target: Target) -> Answer:
        return Yes()

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return Yes()

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        yield Candidate(self.name, {"do": "build"}, "plain")

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        began = time.monotonic()
        getattr(self, "_" + candidate.parameters["do"])(workdir)
        artifact = c_artifact(workdir, "honest", operator, setting)
        if candidate.parameters["do"] == "link":
            (artifact.folder / "kernel.so").unlink()
            (artifact.folder / "kernel.so").symlink_to("/etc/passwd")
        return BuiltArtifact(
            artifact.manifest,
            artifact.folder,
            "a schedule",
            "a source",
            {"compiled": True, "began": began, "ended": time.monotonic()},
        )

    def tune(
        self, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """Counts its slices in a file."""
        state = workdir / "slices.json"
        done = json.loads(state.read_text()) + 1 if state.exists() else 1
        state.write_text(json.dumps(done))
        for index in range(2):
            parameters = {"do": "build", "slice": done, "index": index}
            yield Candidate(self.name, parameters, f"slice {done}.{index}")

    def _build(self, workdir: Path) -> None:
        print("building")

    def _link(self, workdir: Path) -> None:
        return

    def _refuse(self, workdir: Path) -> None:
        raise RouteError("this shape is not for me")

    def _crash(self, workdir: Path) -> None:
        print("about to crash", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)

    def _hang(self, workdir: Path) -> None:
        time.sleep(600)

    def _nap(self, workdir: Path) -> None:
        time.sleep(1.0)

    def _hog(self, workdir: Path) -> None:
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20) * 16))

    def _look_around(self, workdir: Path) -> None:
        """Tell what can be reached from here, as the error."""
        raise RouteError(json.dumps(_reachable(workdir)))


class HereRoute(Obedient):
    """Builds in the worker itself."""

    name = "here"
    builds_in_process = True


class Elsewhere(Obedient):
    """Builds in a child of another zygote."""

    name = "elsewhere"
    zygote = "elsewhere"


def _reachable(workdir: Path) -> dict[str, object]:
    import socket

    def attempt(action: Callable[[], object]) -> str:
        try:
            action()
        except OSError as error:
            return type(error).__name__
        return "possible"

    def connect() -> None:
        socket.create_connection(("1.1.1.1", 53), timeout=2).close()

    status = Path("/proc/self/status").read_text()
    here = Path(__file__).resolve()
    return {
        "network": attempt(connect),
        "interfaces": [
            line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
        ],
        # Asked, not tried: in a weak tier the trial would succeed.
        "writable": [
            path.name
            for path in (
                Path("/usr"),
                Path("/etc"),
                here,
                here.parents[3],
                here.parents[3] / "tuning",
                workdir,
            )
            if os.access(path, os.W_OK)
        ],
        "processes": sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()),
        "root": sorted(path.name for path in Path("/").iterdir()),
        "shadow": attempt(lambda: Path("/etc/shadow").read_text()),
        "capabilities": next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")),
        "no_new_privileges": next(line.split()[1] for line in status.splitlines() if "NoNewPrivs" in line),
        "environment": sorted(os.environ),
    }
