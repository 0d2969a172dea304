"""The tools of ``device_worker``: the real laboratory over a simulated device, and routes that it can run."""

from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tests.catalog.making import GPU
from tests.tuning.measure.simulated_device import SimulatedRoute
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import Budget, Candidate, Route
from tuning.worker import process as worker

TESTS = Path(__file__).resolve().parents[1]
EAGER = SimulatedRoute("eager", us=100)
ROUTES: tuple[Route, ...] = (
    EAGER,
    SimulatedRoute("cublas", us=60),
    SimulatedRoute("triton", us=30, method="compiler"),
    SimulatedRoute("inductor", us=10, does="beyond", method="compiler"),
    SimulatedRoute("xla", us=10, does="overrunning", method="compiler"),
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
