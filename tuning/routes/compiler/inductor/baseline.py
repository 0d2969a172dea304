"""``torch.compile`` as users call it: a baseline for benches, in no registry and published nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opatlas.identity import Operator, Setting, Target
from opatlas.load.torch.graph import missing
from tuning.routes.base import Answer, Budget, Candidate, Method, No, answer
from tuning.routes.compiler.inductor.cxx import find_cxx
from tuning.routes.library.recipes import Recipe, RecipeRoute


class TorchCompile(RecipeRoute):
    """``torch.compile(module, mode="max-autotune")``, weights as buffers, compiled before it is timed; on a
    device without graphs, as eager is timed beside it, or with ours, where the setting has them.

    A laboratory that is warmed with it (``Laboratory.warm((TorchCompile(),))``) compiles an operator in a few
    seconds in the child that measures it; one that is not needs some 15 s for each.
    """

    name = "torch_compile"
    method: Method = "compiler"
    kinds: tuple[str, ...] = ("cpu", "cuda")
    distributions: tuple[str, ...] = ("torch",)
    preload: tuple[str, ...] = ("torch", "opatlas.load.torch.compile:warm")

    def available(self, target: Target) -> Answer:
        if find_cxx() is None:
            return No("torch.compile needs a C++ compiler: install g++ or clang++, or set CXX")
        if target.kind == "cuda" and self.versions().get("torch", "").endswith("+cpu"):
            return No(f"torch {self.versions()['torch']} is built without CUDA")
        return super().available(target)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return answer(missing(operator))

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for candidate in super().candidates(operator, target, setting, budget):
            if target.kind != "cpu":
                # Its own graphs keep all results in one place: two bindings would have each other's.
                there: Recipe = {"mode": "max-autotune-no-cudagraphs", "device": target.kind}
                there = {**there, "tf32": setting.tf32, "graphs": setting.graphs}
                candidate = replace(candidate, parameters={**candidate.parameters, **there})
            yield candidate

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        call: Recipe = {"library": "torch", "call": "compile"}
        yield {**call, "mode": "max-autotune", "threads": setting.threads}, "max-autotune"
