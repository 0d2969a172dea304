"""cuDNN: each plan that its heuristics offer for a graph, of which PyTorch takes one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load.cuda.cudnn import MOST_PLANS
from opatlas.load.cuda.dnn_graph import graph_of
from tuning.routes.base import Answer, Budget, Candidate, No, answer
from tuning.routes.library.recipes import RecipeRoute

TRIED = 8
"""In a contest; tuning tries the rest. How many are offered is known on the device only (about ten for a
convolution): whoever asks for one more is told so when it is loaded."""
HANDED_OUT = "handed-out.json"


class Cudnn(RecipeRoute):
    """TF32 where the setting asks for it, and there alone."""

    name = "cudnn"
    kinds: tuple[str, ...] = ("cuda",)
    distributions: tuple[str, ...] = ("nvidia-cudnn-cu13",)
    preload: tuple[str, ...] = ("opatlas.load.cuda.cudnn",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if setting.accumulate == "float64":
            return answer("cuDNN keeps sums of these types in float32, not float64")
        try:
            graph = graph_of(operator)
        except LoadError as error:
            return answer(str(error))
        if graph.rounds and graph.dtype == "float32" and not setting.tf32:
            return No("cuDNN's products of float32, and convolutions with more than an activation, use TF32")
        return answer(None)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if self.supports(operator, setting):
            for number in range(1, min(TRIED, budget.candidates) + 1):
                yield self._plan(number, setting)

    def tune(
        self, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """The plans that no contest tried, a few a slice."""
        state = workdir / HANDED_OUT
        done = int(json.loads(state.read_text())) if state.exists() else TRIED
        last = min(done + TRIED, MOST_PLANS) if self.supports(operator, setting) else done
        state.write_text(json.dumps(last))
        for number in range(done + 1, last + 1):
            yield self._plan(number, setting)

    def _plan(self, number: int, setting: Setting) -> Candidate:
        recipe = {"library": "cudnn", "call": "graph", "device": "cuda", "plan": number}
        recipe |= {"tf32": setting.tf32, "graphs": setting.graphs}
        return Candidate(self.name, recipe, f"plan {number} of its heuristics")
