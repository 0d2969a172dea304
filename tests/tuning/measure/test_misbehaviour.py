"""Whatever a candidate does, it becomes a status, and the laboratory goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.tuning.measure.busy import decided
from tests.tuning.measure.kernels import BACKGROUND, RUN
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import BuiltArtifact

MEASURED = {Status.OK, Status.NOISY, Status.SLOWER}
"""What an honest kernel may come to on a machine that runs other tests beside."""
CAUGHT = {Status.CRASHED, Status.CHEATED}
"""Seen by who watches (any tier), or ended by the filter for system calls (tier T2)."""
PATIENT = Limits(run_s=20.0, memory_bytes=256 << 20, disk_bytes=64 << 20)
"""For what another limit ends, however slow the machine is."""
HASTY = replace(PATIENT, run_s=1.0)
"""For what would never end."""
NOT_COMPUTED = ("new values", "when timed")
"""Found out in runs on new values at the latest; a look drawn by lot during the race may come first."""

Kernel = Callable[..., BuiltArtifact]


def test_an_honest_kernel_is_measured(relu_bench: Bench, kernel: Kernel, lab: Laboratory) -> None:
    outcome = relu_bench.measure(kernel("honest"))
    assert outcome.status in MEASURED, outcome
    assert outcome.timing is not None
    assert outcome.max_error == 0.0
    assert outcome.timing.ratio_low <= outcome.timing.ratio_to_default <= outcome.timing.ratio_high
    assert outcome.tier == lab.tier.name
    assert outcome.peak_bytes is not None and outcome.peak_bytes > 0


BY_DAY = {"segfault", "hang", "memory", "disk", "forks", "prints", "kill_zygote", "talks", "very_slow"}
"""What fails in another way than the day's cheats do (tests/hostile/cheats)."""


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        pytest.param(*case, id=case[0], marks=[pytest.mark.nightly] * (case[0] not in BY_DAY))
        for case in (
            ("segfault", Status.CRASHED, "SIGSEGV"),
            ("abort", Status.CRASHED, "SIGABRT"),
            ("exit", Status.CRASHED, "exited with code 0"),
            ("error", Status.CRASHED, "7"),
            ("hang", Status.TIMED_OUT, "longer"),
            ("sleep", Status.TIMED_OUT, "longer"),
            ("memory", Status.OUT_OF_MEMORY, "MiB"),
            ("disk", Status.CRASHED, ""),
            ("large_file", Status.CRASHED, ""),
            ("forks", CAUGHT, "processes"),
            ("prints", Status.CRASHED, "printed"),
            ("kill_zygote", CAUGHT, ""),
            ("kill_everyone", CAUGHT, ""),
            ("talks", Status.CRASHED, ""),
            ("wrong", Status.WRONG_RESULT, "1 of 16384 elements are wrong"),
            ("nan", Status.NOT_FINITE, "finite"),
            ("nothing", Status.NOT_FINITE, "finite"),
            ("writes_input", Status.WROTE_INPUT, "input"),
            ("stale", Status.CHEATED, "when timed"),
            ("remembers", Status.CHEATED, "when timed"),
            ("skips_known", Status.CHEATED, NOT_COMPUTED),
            ("leaves_process", Status.CHEATED, "processes"),
            ("very_slow", Status.SLOWER, "slower"),
        )
    ],
)
def test_it_becomes_a_status(
    relu_bench: Bench, kernel: Kernel, name: str, status: Status | set[Status], words: str | tuple[str, ...]
) -> None:
    statuses = status if isinstance(status, set) else {status}
    reasons = (words,) if isinstance(words, str) else words
    limits = HASTY if status is Status.TIMED_OUT else PATIENT

    def expected(outcome: Outcome) -> bool:
        return outcome.status in statuses and any(reason in outcome.detail for reason in reasons)

    outcome = decided(lambda: relu_bench.measure(kernel(name), limits), expected)
    assert expected(outcome), outcome
    # The next candidate finds the bench as it was.
    assert relu_bench.measure(kernel("honest")).status in MEASURED


def test_threads_that_never_rest_are_a_cheat(relu_bench: Bench, kernel: Kernel) -> None:
    outcome = relu_bench.measure(kernel("background", BACKGROUND))
    assert outcome.status in (Status.CHEATED, Status.SLOWER, Status.NOISY), outcome


def test_two_crashes_in_a_row_leave_the_laboratory_usable(relu_bench: Bench, kernel: Kernel) -> None:
    for name in ("segfault", "kill_zygote", "forks"):
        assert relu_bench.measure(kernel(name), PATIENT).status in CAUGHT
    assert relu_bench.measure(kernel("honest")).status in MEASURED


def test_a_file_that_was_changed_is_not_loaded(relu_bench: Bench, kernel: Kernel) -> None:
    artifact = kernel("honest")
    (artifact.folder / "kernel.so").write_bytes(b"something else")
    outcome = relu_bench.measure(artifact)
    assert outcome.status is Status.LOAD_FAILED, outcome


def test_a_missing_file_is_not_loaded(relu_bench: Bench, kernel: Kernel) -> None:
    artifact = kernel("honest")
    (artifact.folder / "kernel.so").unlink()
    assert relu_bench.measure(artifact).status is Status.LOAD_FAILED


def test_a_constructor_that_hangs_times_out(relu_bench: Bench, kernel: Kernel) -> None:
    source = "__attribute__((constructor)) static void go(void) { for (;;) { } }\n"
    source += (
        "int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) { return 0; }"
    )
    assert relu_bench.measure(kernel("constructor", source), HASTY).status is Status.TIMED_OUT


def test_what_it_printed_last_is_kept(relu_bench: Bench, kernel: Kernel) -> None:
    source = (
        "int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) "
        '{ fprintf(stderr, "famous last words\\n"); abort(); }'
    )
    assert "famous last words" in relu_bench.measure(kernel("talker", source)).log_tail


def test_memory_has_a_hard_limit_too(relu_bench: Bench, kernel: Kernel) -> None:
    """One large piece at once, faster than the parent looks."""
    source = (
        RUN
        + """ char* volatile m = mmap(0, 2ul << 30, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0); if (m == MAP_FAILED) return 12;
        relu(t); return 0; }"""
    )
    outcome = relu_bench.measure(kernel("populates", "#include <sys/mman.h>\n" + source), PATIENT)
    assert outcome.status is Status.CRASHED, outcome
    assert "12" in outcome.detail
