"""What strace writes, counted; and a disassembly, read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuning.measure import machine_code
from tuning.measure.observing import calls
from tuning.measure.observing.calls import Calls

RESUMED = '<... recvfrom resumed>"R", 65536, 0, NULL, NULL) = 1'
LINES = """\
recvfrom(5, "{\\"do\\": \\"load\\"}", 65536, 0, NULL, NULL) = 14
openat(AT_FDCWD, "/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)
mmap(NULL, 4096, PROT_READ|PROT_WRITE|PROT_EXEC, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f
mmap(NULL, 4096, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_DENYWRITE, 3, 0x1000) = 0x7f
mprotect(0x7f, 4096, PROT_READ|PROT_EXEC) = 0
clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD, stack=0x7f}, 88) = 12
strace: Process 12 attached
[pid    12] getpid( <unfinished ...>
[pid    11] clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 13
[pid    12] <... getpid resumed>)       = 2
--- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_TKILL} ---
+++ exited with 0 +++
""".splitlines()


def test_calls_threads_processes_paths_and_signals_are_counted() -> None:
    found = Calls().read(LINES).to_json()
    assert found["calls"]["getpid"] == 1 and found["calls"]["mmap"] == 2
    assert found["paths"] == ["/etc/shadow"] and found["signals"] == {"SIGUSR1": 1}
    assert (found["threads"], found["processes"]) == (1, 1)
    assert (found["executable"], found["mapped_code"]) == (2, 1)


def test_what_the_harness_does_is_taken_off() -> None:
    honest = Calls().read(LINES[:4])
    found = Calls().read([*LINES, 'openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 3']).beyond(honest).to_json()
    assert found["paths"] == ["/etc/passwd"] and found["executable"] == 1 and found["mapped_code"] == 0
    assert "recvfrom" not in found["calls"] and found["calls"]["openat"] == 1


def test_when_strace_came_and_went_makes_no_difference_and_a_further_wait_does() -> None:
    """It comes before or in the first wait for a command, and goes before or in the last."""
    first, last = LINES[:1], ["[pid     9] recvfrom(5,  <unfinished ...>"]
    between = ['recvfrom(5, "R", 65536, 0, NULL, NULL) = 1', "recvfrom(5,  <unfinished ...>", RESUMED]
    short, long = Calls().read(between), Calls().read([*first, *between, *last])
    assert long.beyond(short).to_json()["calls"] == {}
    longer = Calls().read([*first, *between, *between[:1], *last])
    assert longer.beyond(short).to_json()["calls"] == {"recvfrom": 2}


def test_a_wait_in_which_the_process_was_stopped_is_one_wait() -> None:
    begun, interrupted = "recvfrom(5,  <unfinished ...>", "0x7f, 65536, 0, NULL, NULL) = ? ERESTARTSYS (To be"
    stopped = ["--- SIGSTOP {si_signo=SIGSTOP} ---", "--- stopped by SIGSTOP ---", "--- SIGCONT {} ---"]
    plainly = Calls().read([begun, RESUMED])
    for waits in ([f"recvfrom(5, {interrupted}"], [begun, f"<... recvfrom resumed>{interrupted}"]):
        twice = Calls().read([*waits, *stopped, *waits, *stopped, begun, RESUMED])
        assert twice.counts["recvfrom"] == 1
        assert "recvfrom" not in twice.beyond(plainly).to_json()["calls"]


def test_a_flood_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_LINES", 10)
    found = Calls().read(f'openat(3, "/{"x" * 999}{chr(97 + n)}", 0) = 3' for n in range(25)).to_json()
    assert found["uncounted"] == 15 and found["calls"] == {"openat": 10}
    assert max(map(len, found["paths"])) == calls.PATH_CHARACTERS


DISASSEMBLY = """\
Disassembly of section .plt:

0000000000001030 <expf@plt>:
    1030:\tjmp    QWORD PTR [rip+0x2fca]

Disassembly of section .text:

0000000000001070 <opatlas_run@@Base-0xc0>:
    1070:\tmov    eax,0x27
    1075:\tsyscall
    1077:\tret
    1078:\tnop    DWORD PTR [rax+rax*1+0x0]
    1080:\tlock cmpxchg DWORD PTR [rdi],esi
    1084:\tret

0000000000001130 <opatlas_run@@Base>:
    1130:\tbnd jmp 1030
    1134:\tret
""".splitlines()


def test_functions_are_split_at_their_ends_and_named() -> None:
    found = list(machine_code.functions_of(DISASSEMBLY))
    assert [one.name for one in found] == [
        "expf@plt", "local function at 0x1070", "local function at 0x1080", "opatlas_run",
    ]  # fmt: skip
    assert [dict(one.notable) for one in found] == [{}, {"syscall": 1}, {}, {}]


def test_padding_does_not_push_what_stands_out_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "MOST_TEXT", 150)
    text, left_out = machine_code.kept(list(machine_code.functions_of(DISASSEMBLY)))
    assert text.startswith("local function at 0x1070") and "syscall" in text
    assert left_out == 2 and len(text) <= 150


def test_where_there_is_no_disassembler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *rest, **more: None)
    found = machine_code.describe(tmp_path / "kernel.so")
    assert "neither objdump" in found["code"]["why_not"] and found["assembly"] == ""


def test_what_is_no_library_says_so(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"no library")
    assert "cannot read the library" in machine_code.describe(tmp_path / "kernel.so")["code"]["why_not"]
