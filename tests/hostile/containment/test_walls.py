"""Attacks on the walls themselves: the user, the file system, the filter for system calls, the limits."""

# ruff: noqa: E501 - C sources
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.hostile.cheats.table import HELPERS
from tests.hostile.containment.conftest import Machine
from tests.hostile.containment.test_running import (
    BUILDING,
    RUNNING,
    WHERE,
    built,
    measure,
    reached,
)
from tests.tuning.measure.kernels import c_artifact
from tuning.measure.outcome import Status

pytestmark = pytest.mark.slow

LOOK = r"""
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
"""


def all_over(machine: Machine) -> str:
    """Every way to a secret: its path, from every process's root, working folder and descriptors."""
    ways = ["", *(f"/proc/%d/{door}" for door in ("root", "cwd", "task/%d/root"))]
    lines = [f'can_read("{path}");' for path in machine.secrets]
    lines += ["char at[512]; for (int i = 1; i < 200; i++) {"]
    for way in ways[1:]:
        lines += [f'sprintf(at, "{way}{path}", i, i); can_read(at);' for path in machine.secrets]
    lines += ['for (int f = 0; f < 64; f++) { sprintf(at, "/proc/%d/fd/%d", i, f); char c[64] = {0};']
    lines += ["int d = i == 1 ? f : open(at, O_RDONLY | O_NONBLOCK);"]
    lines += ['if (d > 2 && pread(d, c, 63, 0) > 0 && strstr(c, "the-secret")) reached("the-secret");']
    return "\n".join([*lines, "if (i > 1 && d >= 0) close(d); } }"])


@WHERE
def test_no_secret_is_readable_by_any_way(machine: Machine, tmp_path: Path, where: str) -> None:
    """The key that signs artifacts among them: neither by who runs foreign code nor by who builds it."""
    assert reached(machine, tmp_path, all_over(machine), where) == []


@WHERE
def test_nobody_inside_is_root_or_can_become_it(machine: Machine, tmp_path: Path, where: str) -> None:
    body = (
        'FILE* f = fopen("/proc/self/status", "r"); char l[256]; int u; while (f && fgets(l, 256, f)) {'
        ' if (sscanf(l, "Uid: %d", &u) == 1 && u == 0) reached("root");'
        ' if (!strncmp(l, "Cap", 3) && !strstr(l, "0000000000000000")) reached("capability");'
        ' if (!strncmp(l, "NoNewPrivs:\\t0", 13)) reached("privileges");'
        ' if (!strncmp(l, "Seccomp:\\t0", 10)) reached("unfiltered"); }'
        " struct statvfs v;"
        ' if (!statvfs("/usr/lib", &v) && !(v.f_flag & ST_NOSUID)) reached("setuid");'
        ' if (!statvfs("/usr/lib", &v) && !(v.f_flag & ST_RDONLY)) reached("writable");'
    )
    assert reached(machine, tmp_path, body, where, LOOK) == []


@WHERE
def test_only_the_sandbox_is_in_its_files(machine: Machine, tmp_path: Path, where: str) -> None:
    body = (
        'FILE* f = fopen("/etc/passwd", "r"); char l[256]; while (f && fgets(l, 256, f))'
        ' if (strncmp(l, "sandbox:", 8)) reached(strtok(l, ":"));'
        ' const char* folders[] = {"/etc", "/tmp", "/home", "/root", "/var", "/run", "/opt", "/srv"};'
        " for (int i = 0; i < 8; i++) { DIR* d = opendir(folders[i]); struct dirent* e;"
        " while (d && (e = readdir(d))) if (e->d_name[0] != '.') { reached(\"/\"); reached(e->d_name); } }"
    )
    found = set(reached(machine, tmp_path, body, where, LOOK)) - {"/"}
    parts = {part for path in (machine.lab.home, Path(__file__)) for part in path.parts}
    loader = {"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "alternatives"}
    assert machine.neighbour.name not in found
    # Of the machine's folders only those that lead to what is shown.
    assert found - loader - parts <= {".pyenv", "pyenv", "work", "opatlas"}, found


def test_where_kernels_run_there_is_no_compiler(machine: Machine, tmp_path: Path) -> None:
    names = ("cc", "gcc", "g++", "clang", "as", "ld", "make", "sh", "bash", "perl", "python3", "objdump")
    tools = [f"{folder}/{name}" for name in names for folder in ("/usr/bin", "/bin", "/usr/local/bin")]
    headers = ["/usr/include/stdio.h", "/usr/include/stdlib.h", "/usr/lib/gcc"]
    body = "".join(f'if (!access("{path}", F_OK)) reached("{path}");' for path in (*tools, *headers))
    assert reached(machine, tmp_path, body, RUNNING) == []
    assert "/usr/bin/as" in reached(machine, tmp_path / "b", body, BUILDING)  # the test would see it


def each(attempts: Mapping[str, str]) -> str:
    """All of them; who comes through says its name."""
    return "".join(f'if ({attempt}) reached("«{name}»");' for name, attempt in attempts.items())


NOT_THERE = {
    "vsock": "socket(40, SOCK_STREAM, 0) >= 0",
    "kernel crypto": "socket(38, SOCK_SEQPACKET, 0) >= 0",
    "netlink": "socket(16, SOCK_RAW, 0) >= 0",
    "packets": "socket(17, SOCK_RAW, 0) >= 0",
    "internet": "socket(AF_INET6, SOCK_STREAM, 0) >= 0",
    "internet by a dirty register": "syscall(SYS_socket, 0x100000002L, SOCK_STREAM, 0) >= 0",
    "a user namespace": "!syscall(SYS_unshare, 0x10000000)",
    "a mount namespace": "!syscall(SYS_unshare, 0x00020000)",
    "a child in a user namespace": "syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0) >= 0",
    "a child by clone3": "({ uint64_t a[11] = {0x10000000, 0, 0, 0, SIGCHLD}; syscall(SYS_clone3, a, 88) >= 0; })",
    "another namespace": "!syscall(SYS_setns, open(\"/proc/1/ns/mnt\", O_RDONLY), 0)",
    "io_uring": "syscall(425, 8, calloc(1, 256)) >= 0",
    "bpf": "syscall(SYS_bpf, 0, calloc(1, 128), 128) >= 0",
    "counters": "syscall(SYS_perf_event_open, calloc(1, 128), 0, -1, -1, 0) >= 0",
    "userfaultfd": "syscall(SYS_userfaultfd, 1) >= 0",
    "keys": "syscall(SYS_keyctl, 0, -3, 0) >= 0 || syscall(SYS_add_key, \"user\", \"x\", \"y\", 1, -2) >= 0",
    "file handles": "({ int h[64] = {128}, m; !syscall(SYS_name_to_handle_at, -100, \"/usr/lib\", h, &m, 0); })",
    "fanotify": "syscall(SYS_fanotify_init, 0x200, 0) >= 0",
    "tracing": "!ptrace(PTRACE_TRACEME, 0, 0, 0)",
    "another memory": "syscall(SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 0) >= 0",
    "comparing": "syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0) >= 0",
    "a personality": "syscall(SYS_personality, 0x0400000) >= 0",
    "the log": "syscall(SYS_syslog, 3, malloc(9), 9) >= 0",
    "the clock": "({ struct timespec s = {1, 0}; !syscall(SYS_clock_settime, 0, &s); })",
    "the terminal": "!syscall(SYS_ioctl, 0, 0x5412, \"x\")",
    "shared segments": "syscall(SYS_shmget, 0, 4096, 01600) >= 0 || syscall(SYS_mq_open, \"q\", O_CREAT | O_RDWR, 0600, 0) >= 0",
    "a parent's limits": "({ uint64_t l[2] = {1, 1}; !syscall(SYS_prlimit64, getppid(), 7, l, 0); })",
}  # fmt: skip


def test_what_nobody_builds_with_is_not_there(machine: Machine, tmp_path: Path) -> None:
    """Asked for where kernels are compiled: by the wider of the two filters."""
    assert reached(machine, tmp_path, each(NOT_THERE), BUILDING) == []


WITHOUT_VERDICT = {
    "a file": 'open("left", O_CREAT | O_WRONLY, 0600) >= 0 || open("/tmp/left", O_CREAT | O_RDWR, 0600) >= 0',
    "shared memory": 'open("/dev/shm/left", O_CREAT | O_RDWR, 0600) >= 0 || !mkdir("/dev/shm/left", 0700)',
    "a file without a name": 'open("/tmp", O_TMPFILE | O_RDWR, 0600) >= 0',
    "a file by openat2": 'syscall(437, -100, "/tmp/l", (uint64_t[3]){O_CREAT | O_RDWR, 0600, 0}, 24) >= 0',
    "a signal by a pipe": "fcntl(0, 10, SIGKILL) >= 0 || fcntl(0, F_SETOWN, getppid()) >= 0",
    "a rival's processors": "({ cpu_set_t c; CPU_ZERO(&c); CPU_SET(0, &c); !sched_setaffinity(getppid(), sizeof c, &c); })",
    "a rival's priority": "!setpriority(PRIO_PROCESS, getppid(), 19) || !setpriority(PRIO_USER, 0, 19)",
    "a rival's limits": "({ struct rlimit l = {1, 1}; !prlimit(getppid(), RLIMIT_NOFILE, &l, 0); })",
    "a lock": '!syscall(SYS_flock, open("/usr/lib", O_RDONLY), 2)',
}


def test_a_running_kernel_leaves_nothing_and_touches_nobody(machine: Machine, tmp_path: Path) -> None:
    assert reached(machine, tmp_path, each(WITHOUT_VERDICT), RUNNING) == []


TRESPASSES = {
    "forks": "fork();",
    "starts a program": 'execl("/usr/bin/true", "true", (char*)0);',
    "runs a command": 'if (system("true")) return 3;',
    "calls somebody": "socket(AF_INET, SOCK_STREAM, 0);",
    "opens a pair": "int both[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, both);",
    "traces": "ptrace(PTRACE_SEIZE, getppid(), 0, 0);",
    "enters a namespace": "syscall(SYS_unshare, 0x10000000);",
    "signals its zygote": "kill(getppid(), 0);",
    "signals everybody": "kill(-1, 0);",
    "signals by a dirty register": "syscall(SYS_kill, 0x100000000L | getppid(), 0);",
    "i386's numbers": '__asm__ volatile("int $0x80" : : "a"(20) : "memory", "r8", "r9", "r10", "r11");',
    "x32's numbers": "syscall(0x40000000 | 39);",
}


@pytest.mark.parametrize("what", TRESPASSES)
def test_a_running_kernel_that_reaches_out_is_a_cheat(machine: Machine, tmp_path: Path, what: str) -> None:
    outcome = measure(machine, tmp_path, TRESPASSES[what] + " return 3;")
    assert outcome.status is Status.CHEATED, outcome
    assert "SIGSYS" in outcome.detail


def test_a_build_leaves_nothing_to_the_next(machine: Machine, tmp_path: Path) -> None:
    places = ("/tmp/left", "/dev/shm/left")
    leave = "".join(f'close(open("{path}", O_CREAT | O_WRONLY, 0666));' for path in places)
    look = "".join(f'if (!access("{path}", F_OK)) reached("{path}");' for path in places)
    assert reached(machine, tmp_path / "leaves", leave + look, BUILDING) == list(places)
    assert reached(machine, tmp_path / "looks", look, BUILDING) == []


def test_descriptors_of_a_running_kernel_are_the_harnesss(machine: Machine, tmp_path: Path) -> None:
    body = (
        'char at[64], to[256]; for (int f = 3; f < 1024; f++) { sprintf(at, "/proc/self/fd/%d", f);'
        " ssize_t k = readlink(at, to, 255); if (k > 0) { to[k] = 0; reached(to); } }"
    )
    found = reached(machine, tmp_path, body, RUNNING)
    strange = [name for name in found if not name.startswith(("socket:", "/memfd:", "(deleted)"))]
    assert strange == [] and sum(name.startswith("socket:") for name in found) == 1, found


def test_a_limit_on_processes_holds_for_one_sandbox(machine: Machine, tmp_path: Path) -> None:
    """A fork bomb where kernels are compiled ends with its user's limit; others of the machine go on."""
    bomb = (
        "int k = 0; for (int i = 0; i < 4000; i++) { pid_t p = fork(); if (!p) { for (;;) pause(); }"
        ' if (p < 0) break; k++; } if (k >= 3999) reached("endless");'
    )
    artifact = c_artifact(
        tmp_path,
        "honest",
        machine.operator,
        machine.setting,
        f"{HELPERS}int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) {{ relu(t); return 0; }}",
    )
    ended = built(machine, tmp_path / "bomb", bomb + " return 3;")
    # Its user's limit, or the parent, who counts processes and what memory they take.
    assert "endless" not in ended.detail, ended
    assert ended.status is Status.OUT_OF_MEMORY or "reached:" in ended.detail or "processes" in ended.detail
    assert machine.bench.measure(artifact).status in (Status.OK, Status.NOISY, Status.SLOWER)


def test_what_a_kernel_says_is_bounded_and_cannot_act_on_a_terminal(machine: Machine, tmp_path: Path) -> None:
    loud = (
        'memset(said, 65, 1900); memcpy(said, "\\x1b[2J\\x1b]0;owned\\x07\\r\\xe2\\x80\\xaetxt", 21);'
        ' printf("\\x1b[31mred\\x07"); fflush(stdout); return 3;'
    )
    outcome = measure(machine, tmp_path, loud)
    assert outcome.status is Status.CRASHED and "[2J" in outcome.detail, outcome
    assert len(outcome.detail) <= 2000 and "red" in outcome.log_tail
    assert all(one == "\n" or one.isprintable() for one in outcome.detail + outcome.log_tail)
