"""``bench --rehearsed tests.gpu.rehearsal``: the simulated device in place of one, with as many problems and
candidates as a device has, so that an errand is seen to end in its time before a device's is spent on it.

What it computes is the simulation's; what it takes is the processor's: processes, references, checks, races.
Its target is no product that there is, and its lines say that they were rehearsed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from opatlas.identity import Operator, Setting, Target, parse_operator
from tests.catalog.making import GPU
from tests.tuning.measure.device.simulated import NO_GPU, SimulatedMonitor
from tests.tuning.measure.simulated_device import SimulatedRoute
from tuning.bare.ceilings import known_or_asked
from tuning.bare.measuring import ProblemTools
from tuning.bare.problems import Problem
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import Budget, Candidate, Route

TESTS = Path(__file__).resolve().parents[1]
PROBLEMS = 60
TARGET = replace(GPU, product="Simulated device")


@dataclass
class Several(SimulatedRoute):
    """So many candidates, of which each takes a little longer than the one before."""

    count: int = 1

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for number in range(min(self.count, budget.candidates)):
            us = self.us * (1 + number / 10)
            yield Candidate(self.name, {"does": self.does, "us": us}, f"{self.does} {number}")


EAGER = SimulatedRoute("eager", us=500)
ROUTES: tuple[Route, ...] = (
    EAGER,
    Several("cublaslt", us=400, count=8),
    Several("cudnn", us=600, does="half", count=2),  # wrong
    Several("triton", us=300, method="compiler", count=8),
    Several("xla", us=50, does="beyond", method="compiler", count=1),  # faults
    Several("inductor", us=350, method="compiler", zygote="inductor", builds_in_process=False, count=2),
)


def default(operator: Operator, target: Target, setting: Setting) -> tuple[Route, Candidate] | None:
    return EAGER, next(EAGER.candidates(operator, target, setting, Budget(1.0)))


def wanted() -> list[Problem]:
    """One of them fails, as some will."""
    shapes = [[64, 128 + 32 * number] for number in range(PROBLEMS)]
    made = [
        Problem(
            "rehearsed",
            "float32",
            number,
            parse_operator({"op": "Relu", "inputs": [{"shape": shape, "dtype": "float32"}]}),
        )
        for number, shape in enumerate(shapes)
    ]
    return [made[0], replace(made[1], operator=None, reason="it has no rule yet"), *made[2:]]


@contextmanager
def tools(said: argparse.Namespace) -> Iterator[tuple[ProblemTools, list[Problem]]]:
    ceilings = known_or_asked(said.state / "ceilings.json", "cpu")
    watch = DeviceWatch(NO_GPU, SimulatedMonitor())
    with (
        TemporaryDirectory(prefix="opatlas-bare-") as home,
        Laboratory(Path(home), TARGET, readable=[TESTS], device=watch) as laboratory,
    ):
        laboratory.warm(ROUTES)
        baseline = SimulatedRoute("torch_compile", us=300, method="compiler")
        yield (
            ProblemTools(
                laboratory,
                ROUTES,
                default,
                baseline=baseline,
                prebuilt=said.prebuilt,
                ceilings=ceilings,
                rehearsed=True,
            ),
            wanted()[: said.most],
        )
