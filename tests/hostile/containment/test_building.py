"""A source that attacks its compiler: whatever it includes, nobody's secrets get in, and it ends in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.containment.conftest import SECRET, Machine
from tests.hostile.containment.routes import Compiling
from tests.tuning.measure.kernels import BODIES, RUN
from tuning.measure.laboratory import Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import BuiltArtifact, Candidate

LIMITS = Limits(build_s=6.0, memory_bytes=384 << 20, disk_bytes=48 << 20)
HONEST = RUN + BODIES["honest"]
LAUGHS = "".join(f"#define L{level + 1} L{level} L{level} L{level} L{level}\n" for level in range(16))

pytestmark = pytest.mark.slow


def build(machine: Machine, source: str, folder: Path) -> BuiltArtifact | Outcome:
    candidate = Candidate("compiling", {"source": source}, "hostile")
    return machine.lab.build(Compiling(), machine.operator, machine.setting, candidate, folder, LIMITS)


def includes(path: Path) -> tuple[str, ...]:
    return (
        f'#include "{path}"\n{HONEST}',
        f'__asm__(".section .rodata\\n.incbin \\"{path}\\"\\n.text");\n{HONEST}',
    )


def test_no_secret_can_be_included(machine: Machine, tmp_path: Path) -> None:
    for number, path in enumerate((*machine.secrets, Path("/etc/shadow"), Path("/root/.bash_history"))):
        for way, source in enumerate(includes(path)):
            outcome = build(machine, source, tmp_path / f"{number}-{way}")
            assert isinstance(outcome, Outcome), f"{path} could be read"
            assert outcome.status is Status.BUILD_FAILED
            assert "No such file" in outcome.detail or "not found" in outcome.detail
            assert SECRET not in outcome.detail + outcome.log_tail


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ", "/proc/2/environ"])
def test_no_environment_holds_a_secret(machine: Machine, tmp_path: Path, path: str) -> None:
    for way, source in enumerate(includes(Path(path))):
        outcome = build(machine, source, tmp_path / str(way))
        if isinstance(outcome, BuiltArtifact):
            assert SECRET.encode() not in (tmp_path / str(way) / "kernel.so").read_bytes()
        else:
            assert SECRET not in outcome.detail + outcome.log_tail


@pytest.mark.parametrize(
    ("source", "statuses"),
    [
        ('#include "/dev/zero"\n', {Status.OUT_OF_MEMORY, Status.TIMED_OUT, Status.BUILD_FAILED}),
        ("#include __FILE__\n", {Status.BUILD_FAILED}),
        (
            f"#define L0 1+1+1+1+\n{LAUGHS}\nint x = L16 0;\n",
            {Status.OUT_OF_MEMORY, Status.TIMED_OUT, Status.CRASHED, Status.BUILD_FAILED},
        ),
        (
            "char large[1u << 30] = {1};\n",
            {Status.CRASHED, Status.BUILD_FAILED, Status.OUT_OF_MEMORY, Status.TIMED_OUT},
        ),
        ('__asm__(".rept 4000000000\\n.quad 1\\n.endr");\n', {
            Status.CRASHED, Status.BUILD_FAILED, Status.OUT_OF_MEMORY, Status.TIMED_OUT}),
    ],
    ids=["endless file", "endless includes", "exponential macros", "huge object", "endless assembly"],
)  # fmt: skip
def test_a_bomb_for_the_compiler_is_contained(
    machine: Machine, tmp_path: Path, source: str, statuses: set[Status]
) -> None:
    outcome = build(machine, source + HONEST, tmp_path / "bomb")
    assert isinstance(outcome, Outcome)
    assert outcome.status in statuses, outcome
    assert outcome.detail
    assert isinstance(build(machine, HONEST, tmp_path / "honest"), BuiltArtifact)


def test_code_that_runs_when_it_is_loaded_runs_in_the_sandbox(machine: Machine, tmp_path: Path) -> None:
    source = "__attribute__((constructor)) static void early(void) { kill(-1, SIGKILL); for (;;) pause(); }\n"
    artifact = build(machine, source + HONEST, tmp_path)
    assert isinstance(artifact, BuiltArtifact), artifact  # building it does not load it
    outcome = machine.bench.measure(artifact, Limits(run_s=3.0))
    assert outcome.status is Status.CHEATED, outcome
