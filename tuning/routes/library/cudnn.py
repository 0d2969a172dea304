"""cuDNN: each plan that its heuristics offer for a graph, of which PyTorch takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opatlas.identity import Operator, Setting
from opatlas.load.cuda.cudnn import MOST_PLANS
from opatlas.load.cuda.dnn_graph import graph_of
from tuning.routes.base import Answer, No
from tuning.routes.library.products import ProductRoute
from tuning.routes.library.recipes import Recipe

SEEN = (9, 28)
"""The least version that was seen to have plans for what follows a head."""


class Cudnn(ProductRoute):
    """How many plans are offered is known on the device only (about ten for a convolution): whoever asks for
    one more is told so when it is loaded."""

    name = "cudnn"
    library = "cuDNN"
    distributions: tuple[str, ...] = ("nvidia-cudnn-cu13", "nvidia-cudnn-frontend")
    exact = 2
    preload: tuple[str, ...] = ("opatlas.load.cuda.cudnn",)
    described: Callable[[Operator], Any] = staticmethod(graph_of)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if not (able := super().supports(operator, setting)):
            return able
        graph = graph_of(operator)
        if graph.rounds and graph.dtype == "float32" and not setting.tf32:
            return No("cuDNN's products of float32, and convolutions with more than an activation, use TF32")
        version = self.versions().get(self.distributions[0], "")
        if version and not graph.plain and tuple(map(int, version.split(".")[:2])) < SEEN:
            return No(f"what follows is not asked of cuDNN {version}: none before 9.28 was seen to plan it")
        return able

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        for number in range(1, MOST_PLANS + 1):
            yield {"library": "cudnn", "call": "graph", "plan": number}, f"plan {number} of its heuristics"
