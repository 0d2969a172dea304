"""The tools of ``device_worker``: the real laboratory over a simulated device, and routes that it can run."""

import re
from collections.abc import Mapping
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tests.catalog.making import GPU
from tests.tuning.measure.simulated_device import SimulatedRoute, artifact
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Route, RouteError, answer
from tuning.routes.manual.submitted import SubmittedRoute
from tuning.worker import process as worker

TESTS = Path(__file__).resolve().parents[1]


class SimulatedCuda(SubmittedRoute):
    """Submitted kernels for the simulated device: their source says what they do, ``simulated: relu 100``."""

    name = "cuda"
    kinds = ("cuda",)
    zygote = "cuda"
    preload = SimulatedRoute.preload
    builds_in_process = True

    def versions(self) -> Mapping[str, str]:
        return {"simulated": "1"}

    def available(self, target: Target) -> Answer:
        return answer(self.foreign(target))

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        said = re.search(r"simulated: (\w+) (\d+)", str(candidate.parameters["source"]))
        if said is None:
            raise RouteError("it does not compile: it does not say what it does")
        return artifact(workdir, operator, said[1], float(said[2]), self.name)


EAGER = SimulatedRoute("eager", us=500)
ROUTES: tuple[Route, ...] = (
    EAGER,
    SimulatedRoute("cublaslt", us=1500),
    SimulatedRoute("triton", us=150, method="compiler"),
    SimulatedRoute("inductor", us=50, does="beyond", method="compiler"),
    SimulatedRoute("xla", us=50, does="overrunning", method="compiler"),
    SimulatedCuda(),
)


def default(operator: Operator, target: Target, setting: Setting) -> tuple[Route, Candidate] | None:
    if not EAGER.supports(operator, setting):
        return None
    return EAGER, next(EAGER.candidates(operator, target, setting, Budget(1.0)))


def laboratory(home: Path, target: Target) -> Laboratory:
    return Laboratory(home, target, readable=[TESTS])


def make_tools() -> worker.Tools:
    return worker.Tools(ROUTES, default, laboratory, lambda: GPU)


worker.make_tools = make_tools
