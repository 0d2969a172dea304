"""The TVM route: untuned schedules in stage 1, MetaSchedule in stage 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import (
    Answer,
    Budget,
    BuiltArtifact,
    Candidate,
    Method,
    No,
    RouteError,
    SearchRecord,
    Yes,
)
from tuning.routes.compiler.tvm import known
from tuning.routes.compiler.tvm.patches import VERSIONS, import_tvm, installed_versions
from tuning.routes.compiler.tvm.table import DTYPES, OPS

NAME = "tvm"


def warm() -> None:
    """Import TVM, patched, and start LLVM: what a zygote does once before it forks. Starts no thread."""
    import_tvm()
    from tvm.target import Target as TvmTarget
    from tvm.target.codegen import llvm_get_cpu_archlist

    llvm_get_cpu_archlist(TvmTarget({"kind": "llvm"}))


class TvmRoute:
    """Apache TVM on CPUs; artifacts need neither TVM nor Python."""

    name = NAME
    method: Method = "compiler"
    zygote = "tvm"
    preload: tuple[str, ...] = ("tuning.routes.compiler.tvm.route:warm",)
    builds_in_process = False

    def versions(self) -> Mapping[str, str]:
        return installed_versions()

    def available(self, target: Target) -> Answer:
        found = installed_versions()
        for name, version in VERSIONS.items():
            if found.get(name) != version:
                have = found.get(name, "not installed")
                return No(f"TVM needs {name} {version}; here it is {have}")
        if target.kind != "cpu" or target.isa != "x86_64":
            return No(f"the TVM route compiles for x86-64 processors, not for {target.kind} {target.isa}")
        return Yes(f"TVM {found['apache-tvm']}")

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        for node in operator.nodes:
            if node.domain not in ("", "ai.onnx") or node.op not in OPS:
                return No(f"TVM's ONNX frontend has no {node.domain + '.' if node.domain else ''}{node.op}")
            if node.op == "BatchNormalization" and node.attributes.get("training_mode"):
                return No("TVM's frontend normalises by the given statistics only, not by a training batch's")
        for i, value in enumerate(operator.inputs):
            if value.strides is not None:
                return No(f"input {i} is not dense and row-major; TVM's code reads dense tensors only")
        for value in (*operator.inputs, *operator.produced):
            if value.dtype not in DTYPES:
                return No(f"TVM's code for CPUs has no {value.dtype}")
            if 0 in value.shape:
                return No("TVM's code does not take empty tensors")
        return Yes()

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        from tuning.routes.compiler.tvm.untuned import variants

        for variant, label in variants(operator, setting)[: budget.candidates]:
            yield Candidate(NAME, {"schedule": variant}, label)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.tvm.compile import Traces, build_artifact, last_line, lower_only
        from tuning.routes.compiler.tvm.untuned import apply_traces, apply_variant

        answer = self.supports(operator, setting)
        if isinstance(answer, No):
            raise RouteError(answer.reason)
        module, native = lower_only(operator, target, setting)
        try:
            if "traces" in candidate.parameters:
                traces = Traces(candidate.parameters["traces"])
                scheduled = apply_traces(module, traces)
            else:
                scheduled, traces = apply_variant(module, target, setting, candidate.parameters["schedule"])
            return build_artifact(operator, target, setting, scheduled, traces, native, workdir)
        except RouteError:
            raise
        except Exception as error:  # TVM's errors share no base but Exception
            raise RouteError(f"TVM cannot compile it: {last_line(error)}") from error

    def tune(
        self, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """MetaSchedule for one slice; what it learns stays in ``workdir``."""
        from tuning.routes.compiler.tvm.compile import last_line
        from tuning.routes.compiler.tvm.metaschedule import search

        answer = self.supports(operator, setting)
        if isinstance(answer, No):
            raise RouteError(answer.reason)
        try:
            yield from search(operator, target, setting, workdir, seconds)
        except RouteError:
            raise
        except Exception as error:  # TVM's errors share no base but Exception
            raise RouteError(f"MetaSchedule fails: {last_line(error)}") from error

    def record_version(self) -> str:
        return f"apache-tvm {installed_versions().get('apache-tvm', '')}"

    def transfer(
        self, operator: Operator, target: Target, setting: Setting, records: Sequence[SearchRecord]
    ) -> Iterator[Candidate]:
        """Records of the operator or its neighbours, each fitted and tried for being applicable."""
        from tuning.routes.compiler.tvm.transfer import candidates_from

        answer = self.supports(operator, setting)
        if isinstance(answer, No):
            raise RouteError(answer.reason)
        yield from candidates_from(operator, target, setting, records)

    def seed(self, workdir: Path, records: Sequence[SearchRecord]) -> None:
        known.write(workdir / known.GIVEN, records)

    def learnt(self, workdir: Path) -> Sequence[SearchRecord]:
        return known.read(workdir / known.LEARNT)
