"""Real kernels, built and watched in the sandbox: an attacker's, an honest one, one that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting
from tuning.measure.laboratory import Laboratory
from tuning.measure.observing import tracing
from tuning.measure.observing.inspecting import Inspection
from tuning.routes.base import BuiltArtifact, Candidate
from tuning.routes.manual.cpp import CppRoute

HEAD = '#include "opatlas_operator.h"\n'
RUN = "int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *threads, void *state)\n"
HONEST = f"""{HEAD}#include <math.h>
static void part(int32_t task, int32_t tasks, void *arg) {{ ((float *)arg)[task] = 0; }}
{RUN}{{
    const float *x = t[0].data; float *y = t[1].data;
    threads->parallel_for(threads->pool, part, y, threads->count);
    for (int64_t i = 0; i < IN0_SIZE; i++) y[i] = x[i] > 0 ? x[i] : 0;
    return 0;
}}
"""
EVIL = f"""{HEAD}#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>
static int hits;
static void *body(void *a) {{ return a; }}
__attribute__((constructor)) static void begin(void) {{ hits = access("/etc/opatlas-secret", 4); }}
{RUN}{{
    pthread_t other; long pid; unsigned long before = __rdtsc();
    if (!pthread_create(&other, 0, body, 0)) pthread_join(other, 0);
    __asm__ volatile("syscall" : "=a"(pid) : "a"(39) : "rcx", "r11", "memory");
    void *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p, 4096);
    return before == 0 && hits;
}}
"""


TRIES = 3


def inspected(lab: Laboratory, operator: Operator, folder: Path, source: str, threads: int = 2) -> Inspection:
    setting = Setting(threads=threads)
    candidate = Candidate("cpp", {"language": "c", "flags": ["-O2"], "source": source}, "a kernel")
    built = lab.build(CppRoute(), operator, setting, candidate, folder / "kernel")
    assert isinstance(built, BuiltArtifact), built
    for attempt in range(TRIES):  # on a busy host the tracer may come too late
        found = lab.inspect(CppRoute(), operator, setting, built, folder / f"empty{attempt}")
        if "threads" in found.observed:
            break
    return found


@pytest.fixture(autouse=True)
def _can_be_watched(lab: Laboratory) -> None:
    if lab.tier.name == "T0" or tracing.why_no_tracer():
        pytest.skip(f"not tested: observing ({tracing.why_no_tracer() or 'no sandbox'})")


def test_an_attackers_kernel_is_seen_through(lab: Laboratory, relu: Operator, tmp_path: Path) -> None:
    found = inspected(lab, relu, tmp_path, EVIL)
    said = [f"{risk['severity']}: {risk['text']}" for risk in found.risks]
    for line in (
        "grave: makes memory executable",
        "grave: opens files: '/etc/opatlas-secret'",  # by its constructor, before anybody called it
        "grave: runs code while it is loaded",
        "grave: has system calls of its own in its machine code: syscall 1×",
        "serious: calls the system otherwise: getpid 8×",
        "serious: reads the processor's clock in its machine code: rdtsc 1×",
        "serious: its machine code starts threads of its own: pthread_create",
    ):
        assert any(one.startswith(line) for one in said), (line, said)
    assert found.observed["threads"] >= 7  # eight, but for the pool's that an honest one starts
    first = found.assembly.split(":", 1)[0]
    assert "syscall" in found.assembly.split("\n\n")[0], first


def test_an_honest_kernel_with_the_pool_computes_only(
    lab: Laboratory, relu: Operator, tmp_path: Path
) -> None:
    found = inspected(lab, relu, tmp_path, HONEST)
    assert {risk["severity"] for risk in found.risks} <= {"fine", "note"}, found
    assert found.observed["threads"] == 0 and found.code["imports"] == []
    assert "opatlas_run:" in found.assembly


@pytest.mark.parametrize(
    ("does", "also"),
    [
        ("__builtin_trap();", "did not come to its end while it was observed: "),
        # Whether or not the sandbox ends it there.
        ("return socket(1, 1, 0) == 77;", "uses the network or sockets"),
    ],
)
def test_what_is_ended_while_it_is_watched_is_shown_up_to_there(
    lab: Laboratory, relu: Operator, tmp_path: Path, does: str, also: str
) -> None:
    found = inspected(lab, relu, tmp_path, f"{HEAD}#include <sys/socket.h>\n{RUN}{{ {does} }}")
    grave = [risk["text"] for risk in found.risks if risk["severity"] == "grave"]
    assert any(text.startswith(also) for text in grave), found.risks


def test_without_strace_nothing_is_called_harmless(
    lab: Laboratory, relu: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_PLACES", str(tmp_path))
    found = inspected(lab, relu, tmp_path, HONEST)
    assert found.observed == {"why_not": "strace is not installed on this worker"}
    assert found.risks[0]["severity"] == "serious" and "was not observed" in found.risks[0]["text"]
