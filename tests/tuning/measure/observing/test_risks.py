"""Each risk line: what makes it, and how grave it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import by_day
from tuning.kernels.source_digest import tokens_digest
from tuning.measure.observing.risks import (
    GROWN_BYTES,
    LARGE_DATA,
    SEVERITIES,
    Risk,
    ordered,
    risks_of_code,
    risks_of_run,
    risks_of_source,
)
from tuning.measure.observing.source import findings
from tuning.routes.manual.cpp import MAX_SOURCE_BYTES

FINE_RUN = Risk("fine", "computes only: no system call beside memory while it was observed")
FINE_CODE = Risk("fine", "its machine code calls nothing but mathematics and memory")
FINE_SOURCE = Risk("fine", "nothing stands out in its source")


@pytest.mark.parametrize(
    ("observed", "severity", "text"),
    [
        ({"why_not": "strace is not installed"}, "serious", "was not observed: strace is not installed"),
        ({"failed": "signal 11"}, "grave", "did not come to its end while it was observed: signal 11"),
        ({"processes": 2}, "grave", "starts processes: 2"),
        ({"threads": 3}, "serious", "starts threads: 3"),
        ({"executable": 1}, "grave", "makes memory executable"),
        ({"calls": {"ptrace": 1}}, "grave", "for what no kernel needs: ptrace 1×"),
        ({"calls": {"socket": 8}}, "grave", "uses the network or sockets in every call: socket 8×"),
        ({"calls": {"connect": 1}}, "grave", "uses the network or sockets: connect 1×"),
        ({"calls": {"openat": 1}, "paths": ["/etc/shadow"]}, "grave", "opens files: '/etc/shadow'"),
        ({"calls": {"write": 9}}, "serious", "reads or writes files in every call: write 9×"),
        ({"calls": {"clock_gettime": 8}}, "serious", "reads the clock or sleeps in every call"),
        ({"calls": {"rt_sigaction": 1}}, "serious", "handles or sends signals: rt_sigaction 1×"),
        ({"signals": {"SIGSEGV": 2}}, "serious", "gets signals: SIGSEGV 2×"),
        ({"calls": {"sched_setaffinity": 1}}, "serious", "asks where it runs, or changes it"),
        ({"calls": {"getpid": 3}}, "serious", "calls the system otherwise: getpid 3×"),
        ({"uncounted": 5}, "serious", "makes more system calls than were counted"),
        ({"grown_bytes": GROWN_BYTES + (1 << 20)}, "note", "grows by 65 MiB"),
        ({"calls": {"mmap": 8, "munmap": 8}}, "note", "asks for memory in every call"),
        ({"paths": ["/lib/xN_N-linux-gnu/libmvec.so.N"], "mapped_code": 1}, "note",
         "has system libraries loaded: libmvec.so.N"),
        ({"mapped_code": 1}, "grave", "maps code that is no system library's"),
        ({"paths": ["/tmp/lib/libm.so.N"], "mapped_code": 1}, "grave", "opens files: '/tmp/lib/libm.so.N'"),
    ],
)  # fmt: skip
def test_a_line_of_what_was_observed(observed: dict[str, Any], severity: str, text: str) -> None:
    found = risks_of_run({"runs": 8, **observed})
    assert [risk.severity for risk in found if text in risk.text] == [severity], found
    assert FINE_RUN not in found


def test_memory_waiting_and_the_linkers_own_reading_are_fine() -> None:
    assert risks_of_run({"runs": 8, "calls": {"mmap": 3, "futex": 90, "rseq": 1}}) == [FINE_RUN]
    linked = {"openat": 2, "read": 1, "mmap": 4, "newfstatat": 2, "close": 2}
    paths = ["/etc/ld.so.cache", "/lib/xN_N-linux-gnu/libmvec.so.N"]
    found = risks_of_run({"runs": 8, "calls": linked, "paths": paths, "mapped_code": 1})
    assert [risk.severity for risk in found] == ["note"], found


@pytest.mark.parametrize(
    ("code", "severity", "text"),
    [
        ({"why_not": "no objdump"}, "serious", "was not disassembled: no objdump"),
        ({"imports": ["system"]}, "grave", "starts programs: system"),
        ({"imports": ["dlsym"]}, "grave", "finds functions by their names at run time: dlsym"),
        ({"imports": ["syscall"]}, "grave", "calls the system directly: syscall"),
        ({"imports": ["mprotect"]}, "grave", "makes memory executable, or reads another process: mprotect"),
        ({"imports": ["clock_gettime"]}, "serious", "reads the clock: clock_gettime"),
        ({"imports": ["pthread_create"]}, "serious", "starts threads of its own: pthread_create"),
        ({"imports": ["fopen"]}, "serious", "opens files: fopen"),
        ({"imports": ["socket"]}, "serious", "uses the network: socket"),
        ({"imports": ["longjmp"]}, "serious", "handles signals or jumps out of calls: longjmp"),
        ({"imports": ["getenv"]}, "serious", "asks where and as what it runs: getenv"),
        ({"imports": ["puts"]}, "note", "prints: puts"),
        ({"imports": ["atexit"]}, "note", "leaves something to do at exit: atexit"),
        ({"notable": {"syscall": 1}}, "grave", "has system calls of its own in its machine code: syscall 1×"),
        ({"notable": {"rdtsc": 2}}, "serious", "reads the processor's clock in its machine code: rdtsc 2×"),
        ({"notable": {"rdpmc": 1}}, "serious", "reads performance counters"),
        ({"notable": {"clflush": 1}}, "serious", "flushes the cache"),
        ({"notable": {"wrfsbase": 1}}, "serious", "changes the thread's pointers"),
        ({"notable": {"ldmxcsr": 1}}, "serious", "sets the rounding mode"),
        ({"notable": {"cpuid": 1}}, "note", "asks what processor it runs on"),
        ({"notable": {"rdrand": 1}}, "note", "draws random numbers"),
        ({"constructors": 1}, "grave", "runs code while it is loaded"),
        ({"data_bytes": LARGE_DATA + 1024}, "serious", "brings 65 KiB of data"),
        ({"left_out": 3}, "note", "3 functions are not shown"),
    ],
)
def test_a_line_of_machine_code(code: dict[str, Any], severity: str, text: str) -> None:
    found = risks_of_code(code)
    assert [risk.severity for risk in found if text in risk.text] == [severity], found
    assert FINE_CODE not in found


def test_mathematics_is_fine() -> None:
    assert risks_of_code({"imports": ["expf", "malloc", "memcpy"], "notable": {}}) == [FINE_CODE]


@pytest.mark.parametrize(
    ("line", "severity", "text"),
    [
        ('__asm__("nop");', "serious", "writes assembly in its source: __asm__"),
        ('__asm__(".incbin \\"/etc/shadow\\"");', "grave", "embeds a file while it is compiled"),
        ("__attribute__((constructor)) void f(void);", "grave", "asks to be run while it is loaded"),
        ("__attribute__((ifunc(\"pick\"))) int f(void);", "grave", "asks to be run while it is loaded"),
        ("syscall(39);", "grave", "names system calls in its source: syscall"),
        ("sys\\\ncall(39);", "grave", "names system calls in its source: syscall"),
        ("dlsym(0, \"x\");", "grave", "looks for functions by their names in its source: dlsym"),
        ("pthread_create(&t, 0, f, 0);", "grave", "names threads or processes in its source"),
        ("clock_gettime(1, &t);", "serious", "names a clock in its source: clock_gettime"),
        ("fopen(\"x\", \"r\");", "serious", "names files or mappings in its source: fopen"),
        ("socket(1, 1, 0);", "grave", "names the network in its source: socket"),
        ("sigaction(11, &a, 0);", "serious", "names signals, timers or long jumps in its source"),
        ("mprotect(p, 4096, 7);", "grave", "names memory protection or other processes in its source"),
        ("getenv(\"x\");", "serious", "asks in its source where it runs: getenv"),
        ('((int (*)(void))"\\x0f\\x05")();', "grave", "calls data as a function"),
        ("((void (*)(int))0x401000)(1);", "grave", "calls data as a function"),
        (f"float t[] = {{{', '.join('1.5f' for _ in range(300))}}};", "serious", "large tables of constants"),
        (f'char *t = "{"q" * 201}";', "serious", "holds long texts"),
        # A letter that is a quotation mark begins no text.
        ("char q = '\"'; dlsym(0, 0); char r = '\"';", "grave", "looks for functions by their names"),
    ],
)  # fmt: skip
def test_a_line_of_the_source(line: str, severity: str, text: str) -> None:
    found = risks_of_source(findings(f"int opatlas_run(void) {{\n{line}\nreturn 0; }}"))
    assert severity in [risk.severity for risk in found if text in risk.text], found
    assert FINE_SOURCE not in found


def test_what_only_a_comment_or_a_sentence_says_is_fine() -> None:
    source = '// syscall(1) by __asm__\n/* dlsym */ const char *opatlas_error(void) { return "fork failed"; }'
    assert risks_of_source(findings(source)) == [FINE_SOURCE]


@pytest.mark.parametrize(
    "repeated", ["( ", "(a(* ", "((a(*)()) ", '\\"', "\\'", 'R"(', "/*", "f(", "{ ", "1 ,", "1'"]
)
@pytest.mark.parametrize("then", by_day.first(1, ["", " "]))
def test_no_source_holds_up_who_reads_it(repeated: str, then: str) -> None:
    """As large as a source may be: the square of its length takes minutes."""
    begun = time.thread_time()
    hostile = f'int a[] = {{{"," * 300}"{repeated * 8}{(then or repeated) * MAX_SOURCE_BYTES}'[
        :MAX_SOURCE_BYTES
    ]
    for source in (hostile, hostile.replace('"', "(", 1), hostile + "\\"):
        findings(source)
        tokens_digest(source)
    assert time.thread_time() - begun < 8


def test_a_polynomial_is_no_large_table() -> None:
    assert not findings(f"static const float c[] = {{{', '.join('0x1.8p-3f' for _ in range(40))}}};")


def test_the_gravest_stand_first_and_each_once() -> None:
    lines = [Risk(severity, severity) for severity in reversed(SEVERITIES)] * 2
    assert [risk.severity for risk in ordered(lines)] == list(SEVERITIES)
