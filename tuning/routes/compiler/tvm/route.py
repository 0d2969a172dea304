"""The TVM route: untuned schedules in stage 1, MetaSchedule in stage 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, KnownLimit, No, SearchRecord, answer
from tuning.routes.compiler.base import CompilerRoute
from tuning.routes.compiler.tvm import known
from tuning.routes.compiler.tvm.patches import VERSIONS, import_tvm, installed_versions
from tuning.routes.compiler.tvm.table import (
    DTYPES,
    OPS,
    has_odd_channels,
    normalises_a_convolution,
    variants,
)

NAME = "tvm"


def warm() -> None:
    """Import TVM, patched, and start LLVM: what a zygote does once before it forks. Starts no thread."""
    import_tvm()
    from tvm.target import Target as TvmTarget
    from tvm.target.codegen import llvm_get_cpu_archlist

    llvm_get_cpu_archlist(TvmTarget({"kind": "llvm"}))


class TvmRoute(CompilerRoute):
    """Apache TVM on CPUs; artifacts need neither TVM nor Python."""

    name = zygote = NAME
    title = "TVM"
    preload: tuple[str, ...] = ("tuning.routes.compiler.tvm.route:warm",)
    limits = (
        KnownLimit(
            "A convolution whose output channels (of one group) no vector of four divides keeps narrow "
            "vectors: TVM pads only what it knows as an einsum.",
            has_odd_channels,
        ),
        KnownLimit(
            "A batch normalisation in one operator with its convolution: the untuned schedule takes 9 to 15 "
            "times as long as PyTorch eager. In a simplified model it is in the convolution's weights.",
            normalises_a_convolution,
        ),
    )

    def versions(self) -> Mapping[str, str]:
        return installed_versions()

    def available(self, target: Target) -> Answer:
        found = installed_versions()
        for name, version in VERSIONS.items():
            if found.get(name) != version:
                have = found.get(name, "not installed")
                return No(f"TVM needs {name} {version}; here it is {have}")
        return answer(self.foreign(target), f"TVM {found['apache-tvm']}")

    def missing(self, operator: Operator) -> str | None:
        for node in operator.nodes:
            if node.domain not in ("", "ai.onnx") or node.op not in OPS:
                return f"TVM's ONNX frontend has no {node.domain + '.' if node.domain else ''}{node.op}"
            if node.op == "BatchNormalization" and node.attributes["training_mode"]:
                return "TVM's frontend normalises by the given statistics only, not by a training batch's"
        for value in (*operator.inputs, *operator.produced):
            if value.dtype not in DTYPES:
                return f"TVM's code for CPUs has no {value.dtype}"
            if 0 in value.shape:
                return "TVM's code does not take empty tensors"
        return None

    def message(self, error: Exception) -> str:
        from tuning.routes.compiler.tvm.compile import last_line

        return last_line(error)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for variant, label in variants(operator)[: budget.candidates]:
            yield Candidate(NAME, {"schedule": variant}, label)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.tvm.compile import Traces, build_artifact, lower_only
        from tuning.routes.compiler.tvm.untuned import apply_traces, apply_variant

        with self.refusing(operator, "TVM cannot compile it"):
            module, native = lower_only(operator, target, setting)
            if "traces" in candidate.parameters:
                traces = Traces(candidate.parameters["traces"])
                scheduled = apply_traces(module, traces)
            else:
                scheduled, traces = apply_variant(module, target, setting, candidate.parameters["schedule"])
            return build_artifact(operator, target, setting, scheduled, traces, native, workdir)

    def tune(
        self, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """MetaSchedule for one slice; what it learns stays in ``workdir``."""
        from tuning.routes.compiler.tvm.metaschedule import search

        with self.refusing(operator, "MetaSchedule fails"):
            yield from search(operator, target, setting, workdir, seconds)

    def record_version(self) -> str:
        return f"apache-tvm {installed_versions().get('apache-tvm', '')}"

    def transfer(
        self, operator: Operator, target: Target, setting: Setting, records: Sequence[SearchRecord]
    ) -> Iterator[Candidate]:
        """Records of the operator or its neighbours, each fitted and tried for being applicable."""
        from tuning.routes.compiler.tvm.transfer import candidates_from

        with self.refusing(operator, "TVM cannot transfer it"):
            yield from candidates_from(operator, target, setting, records)

    def seed(self, workdir: Path, records: Sequence[SearchRecord]) -> None:
        known.write(workdir / known.GIVEN, records)

    def learnt(self, workdir: Path) -> Sequence[SearchRecord]:
        return known.read(workdir / known.LEARNT)
