"""A model's run on shared engines: its steps, and what each of them needs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from opatlas.placement.queues import NoEngine
from opatlas.plan.concurrent import stream_tasks
from opatlas.plan.engines.engines import EngineShare
from opatlas.plan.engines.steps import DeadlinePassed, EngineStep, with_own_pool
from opatlas.plan.plan import CONFINED, ByFramework
from opatlas.plan.program import GraphProgram
from opatlas.plan.regions import Region
from opatlas.streams.hazards import hazards


@dataclass
class OnEngines:
    """One run. ``deadline_s``: from its construction."""

    share: EngineShare
    deadline_s: float
    _began_at: float = field(default_factory=time.monotonic)

    def run(self, steps: Sequence[EngineStep]) -> None:
        self.share.run(steps, self.look())

    def look(self) -> float:
        """The seconds left; raises :class:`DeadlinePassed`."""
        left_s = self.deadline_s - (time.monotonic() - self._began_at)
        if not left_s > 0:
            raise DeadlinePassed(f"The deadline of {self.share.model} passed before it could run.")
        return left_s

    def run_whole(
        self, model: Region, arrays: Sequence[np.ndarray], predicted_us: float | None, framework: str
    ) -> list[np.ndarray]:
        """Run a whole model in a framework, as one step."""
        made: list[np.ndarray] = []
        step = EngineStep(
            "the whole model",
            lambda: made.extend(model.run(arrays)),
            reference_s=_seconds(predicted_us),
            confined=framework in CONFINED,
            by=lambda: framework,
        )
        try:
            self.run([step])
        except NoEngine:
            return model.run(arrays)
        return made


def engine_steps(program: GraphProgram) -> list[EngineStep]:
    """The steps of a settled program with one turn. Each needs the earlier steps that touch the same
    memory."""
    tasks = stream_tasks(program)
    needs: dict[int, set[int]] = defaultdict(set)
    for one in hazards(tasks):
        needs[one.after].add(one.before)
    found = []
    for number, step in enumerate(program.plan.steps):
        call = partial(program.run_step, number)
        found.append(
            EngineStep(
                tasks[number].said,
                with_own_pool(call) if program.artifacts else call,
                frozenset(needs[number]),
                _seconds(step.predicted_us),
                isinstance(step.by, ByFramework) and step.by.framework in CONFINED,
                partial(program.run_by, number),
            )
        )
    return found


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6
