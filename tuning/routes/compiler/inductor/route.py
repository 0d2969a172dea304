"""The Inductor route: PyTorch's compiler, ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from opatlas.identity import Node, Operator, Setting, Target
from opatlas.load.needs import installed_version
from opatlas.load.torch.graph import missing
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, KnownLimit, No, answer
from tuning.routes.compiler.base import CompilerRoute
from tuning.routes.compiler.inductor.cxx import find_cxx
from tuning.routes.compiler.inductor.on_device import TUNED
from tuning.routes.cuda_headers import toolkit
from tuning.routes.library.shapes import constant

NAME = "inductor"

TEMPLATE_DTYPES = frozenset(("float32",))
"""Half types are packed for particular instructions; their packing is not written down yet."""

TEMPLATES = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
"""What max-autotune adds on CPUs: products in generated C++, epilogues fused into them. Left alone, Inductor
would time them against ATen's while it compiles; here the contest does."""


class InductorRoute(CompilerRoute):
    """AOTInductor on CPUs and GPUs; artifacts need exactly the PyTorch that made them."""

    name = zygote = NAME
    kinds: tuple[str, ...] = ("cpu", "cuda")
    title = "Inductor"
    preload: tuple[str, ...] = ("tuning.routes.compiler.inductor.compile:warm",)
    limits = (
        KnownLimit(
            "Inductor's code for processors is C++ with OpenMP: the compiler that this project brings along "
            "(zig) has no omp.h and calls another OpenMP runtime than PyTorch's.",
            lambda operator: missing(operator) is None,
            "on machines without g++ and clang++",
        ),
    )

    def versions(self) -> Mapping[str, str]:
        version = installed_version("torch")
        return {"torch": version} if version else {}

    def available(self, target: Target) -> Answer:
        if not self.versions():
            return No("torch is not installed: pip install torch==2.13.0")
        reason = self._not_on_gpus() if target.kind == "cuda" else self.foreign(target)
        if find_cxx() is None:
            reason = reason or "Inductor needs a C++ compiler: install g++ or clang++, or set CXX"
        return answer(reason, f"PyTorch {self.versions()['torch']}")

    def _not_on_gpus(self) -> str | None:
        if self.versions()["torch"].endswith("+cpu"):
            return f"torch {self.versions()['torch']} is built without CUDA"
        if not installed_version("triton"):
            return "Inductor's code for GPUs is Triton's, which is not installed"
        return (
            None if toolkit() else "Inductor needs CUDA's headers: install the CUDA toolkit, or set CUDA_HOME"
        )

    def missing(self, operator: Operator) -> str | None:
        return missing(operator)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if not self.supports(operator, setting):
            return
        made = [Candidate(NAME, {}, "ahead of time")]
        if target.kind == "cuda":
            made.insert(0, Candidate(NAME, {"options": dict(TUNED)}, "max-autotune"))
        elif any(_has_template(operator, node) for node in operator.nodes):
            made.append(Candidate(NAME, {"options": TEMPLATES}, "C++ GEMM templates"))
        yield from made[: budget.candidates]

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.inductor import compile, on_device

        build_package = (on_device if target.kind == "cuda" else compile).build_package
        with self.refusing(operator, "Inductor cannot compile it"):
            return build_package(operator, target, setting, candidate.parameters, workdir)


def _has_template(operator: Operator, node: Node) -> bool:
    """Whether a node may become a GEMM template: weights that can be packed, or a batch of products."""
    if node.op not in ("MatMul", "Gemm") or operator.value(node.inputs[0]).dtype not in TEMPLATE_DTYPES:
        return False
    return constant(operator, node.inputs[1]) or len(operator.value(node.outputs[0]).shape) > 2
