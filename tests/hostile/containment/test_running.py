"""A kernel that attacks the machine: each attempt fails or ends it, and the outcome says which."""

# ruff: noqa: E501 - C sources
from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.hostile.cheats.table import HELPERS
from tests.hostile.containment.conftest import SECRET, Machine
from tests.hostile.containment.routes import Probing
from tests.tuning.measure.kernels import c_artifact
from tests.tuning.measure.test_misbehaviour import MEASURED
from tuning.measure.laboratory import Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import Candidate

LIMITS = Limits(run_s=4.0, memory_bytes=256 << 20, disk_bytes=64 << 20)
PATIENT = replace(LIMITS, run_s=20.0)
HASTY = replace(LIMITS, run_s=1.0)  # for what would never end
"""For what another limit ends, however slow the machine is."""
PROBE = r"""
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sys/un.h>
#include <sys/uio.h>
static char said[2000] = "reached:";
static void reached(const char* what) { if (strlen(said) < 1500) { strcat(said, " "); strcat(said, what); } }
const char* opatlas_error(void) { return said; }
static void can_read(const char* path) { char c[4096]; int f = open(path, O_RDONLY);
  if (f >= 0) { ssize_t k = read(f, c, sizeof c - 1); if (k > 0) { c[k] = 0; reached(path);
    for (ssize_t i = 0; i < k; i++) if (!c[i]) c[i] = ' ';
    if (strstr(c, "the-secret")) reached("the-secret"); } close(f); } }
static void can_write(const char* path) { int f = open(path, O_WRONLY);
  if (f >= 0) { if (write(f, "1", 1) == 1) reached(path); close(f); } }
"""

pytestmark = pytest.mark.slow


RUNNING, BUILDING = "running", "building"
WHERE = pytest.mark.parametrize("where", [RUNNING, BUILDING])


def source_of(body: str, before: str = "") -> str:
    run = "int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) {"
    return f"{HELPERS}{before}{PROBE}\n{run}\n{body}\n}}\n"


def measure(machine: Machine, folder: Path, body: str, before: str = "") -> Outcome:
    artifact = c_artifact(folder, "probe", machine.operator, machine.setting, source_of(body, before))
    return machine.bench.measure(artifact, LIMITS)


def built(machine: Machine, folder: Path, body: str, before: str = "") -> Outcome:
    """The same where kernels are compiled: it runs there, and the build fails with what it says."""
    candidate = Candidate("probing", {"source": source_of(body, before)}, "hostile")
    outcome = machine.lab.build(Probing(), machine.operator, machine.setting, candidate, folder, LIMITS)
    assert isinstance(outcome, Outcome)
    return outcome


def reached(machine: Machine, folder: Path, body: str, where: str = RUNNING, before: str = "") -> list[str]:
    """What a probe says that it reached, as an error's text: as a kernel, or where kernels are compiled (there
    the filter is the wider one, and what a kernel must not even ask for is tried)."""
    if where == RUNNING:
        outcome = measure(machine, folder, body + " return 3;", before)
        assert outcome.status is Status.CRASHED, outcome
    else:
        outcome = built(machine, folder / "out", body + " return 3;", before)
    assert "reached:" in outcome.detail, outcome
    return outcome.detail.partition("reached:")[2].split()


@WHERE
def test_no_file_of_the_machine_can_be_read(machine: Machine, tmp_path: Path, where: str) -> None:
    paths = [
        *machine.secrets, machine.lab.home / "library", machine.lab.home / "native.log", machine.lab.home.parent,
        *map(Path, ("/etc/shadow", "/root", "/home", "/var/lib", "/proc/1/root/etc/shadow", "/proc/1/root/root",
                    "/proc/1/cwd", "/proc/kcore", "/dev/mem", "/dev/sda", "/dev/kmsg", "/proc/kmsg")),
    ]  # fmt: skip
    body = "".join(f'can_read("{path}");' for path in paths)
    assert reached(machine, tmp_path, body, where) == []


@WHERE
def test_no_environment_but_the_sandboxs_can_be_read(machine: Machine, tmp_path: Path, where: str) -> None:
    body = 'char name[64]; for (int i = 1; i < 300; i++) { sprintf(name, "/proc/%d/environ", i); can_read(name); }'
    assert "the-secret" not in reached(machine, tmp_path, body, where)
    body = 'if (getenv("OPATLAS_TEST_SECRET") || getenv("DATABASE_URL")) reached("variable");'
    assert reached(machine, tmp_path, body, where) == []


@WHERE
def test_no_setting_of_the_system_can_be_written(machine: Machine, tmp_path: Path, where: str) -> None:
    paths = (
        "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
        "/sys/fs/cgroup/cgroup.procs", "/proc/sys/kernel/hostname", "/etc/passwd",
        "/usr/bin/env", str(machine.lab.home / "native.log"), "/proc/1/mem", "/proc/2/mem",
    )  # fmt: skip
    body = "".join(f'can_write("{path}");' for path in paths)
    body += 'if (!mkdir("/new", 0700)) reached("root"); if (!sethostname("x", 1)) reached("hostname");'
    assert reached(machine, tmp_path, body, where) == []


def test_no_service_can_be_called(machine: Machine, tmp_path: Path) -> None:
    ports = (machine.port, 5432, 6379, 8000)
    body = "".join(
        f"{{ struct sockaddr_in a = {{AF_INET, htons({port})}}; a.sin_addr.s_addr = htonl(0x7f000001);"
        f' int f = socket(AF_INET, SOCK_STREAM, 0); if (!connect(f, (void*)&a, sizeof a)) reached("port{port}"); }}'
        for port in ports
    )
    paths = (
        machine.unix_socket,
        "/var/run/postgresql/.s.PGSQL.5432",
        "/run/redis/redis.sock",
        "/run/docker.sock",
    )
    body += "".join(
        f'{{ struct sockaddr_un a = {{AF_UNIX, "{str(path)[:100]}"}}; int f = socket(AF_UNIX, SOCK_STREAM, 0);'
        f' if (!connect(f, (void*)&a, sizeof a)) reached("{path}"); }}'
        for path in paths
    )
    body += (
        "{ struct sockaddr_un a = {AF_UNIX}; int f = socket(AF_UNIX, SOCK_STREAM, 0);"
        f' strcpy(a.sun_path + 1, "{machine.abstract}"); if (!connect(f, (void*)&a,'
        f' sizeof(sa_family_t) + 1 + {len(machine.abstract)})) reached("abstract"); }}'
        "{ struct sockaddr_in a = {AF_INET, htons(53)}; a.sin_addr.s_addr = htonl(0x01010101);"
        ' int f = socket(AF_INET, SOCK_DGRAM, 0); if (sendto(f, "x", 1, 0, (void*)&a, sizeof a) > 0) reached("net"); }'
    )
    assert reached(machine, tmp_path, body, BUILDING) == []
    assert machine.visitors() == 0


def test_no_other_process_can_be_traced_or_read(machine: Machine, tmp_path: Path) -> None:
    body = (
        "char c[64]; for (int i = 1; i < 300; i++) { if (i == getpid()) continue;"
        ' if (!ptrace(PTRACE_SEIZE, i, 0, 0)) reached("traced");'
        " struct iovec to = {c, 64}, from = {(void*)0x555555554000, 64};"
        ' if (i > 1 && process_vm_readv(i, &to, 1, &from, 1, 0) > 0) reached("read"); }'
    )
    assert reached(machine, tmp_path, body, BUILDING) == []


def test_privileges_cannot_be_had(machine: Machine, tmp_path: Path) -> None:
    body = (
        'if (!setuid(0) && !chroot("/tmp")) reached("chroot"); if (!mknod("disk", S_IFBLK | 0600, 0x800))'
        ' reached("device"); if (!syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, 0)) reached("mount");'
        ' if (syscall(SYS_init_module, "", 0, "") == 0) reached("module");'
        ' if (setpriority(PRIO_PROCESS, 0, -20) == 0) reached("priority");'
    )
    assert reached(machine, tmp_path, body, BUILDING) == []


BOMBS = {
    "processes": ("for (;;) { if (fork() < 0) pause(); }", {Status.CHEATED}, "processes"),
    "memory": (
        "for (;;) { char* m = malloc(8 << 20); if (!m) pause(); memset(m, 1, 8 << 20); }",
        {Status.OUT_OF_MEMORY},
        "MiB",
    ),
    "shared memory": (
        "for (;;) { char* m = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);"
        " if (m == MAP_FAILED) pause(); memset(m, 1, 8 << 20); }",
        {Status.OUT_OF_MEMORY},
        "MiB",
    ),
    "threads": (
        "for (;;) { pthread_t th; if (pthread_create(&th, 0, idle, 0)) break; } for (;;) pause();",
        {Status.TIMED_OUT, Status.CRASHED, Status.CHEATED, Status.OUT_OF_MEMORY},
        "",
    ),
    "an endless loop": ("for (;;) { }", {Status.TIMED_OUT}, "longer"),
    "its folder": (
        "static char b[1 << 20]; char name[64]; for (int i = 0; ; i++) { sprintf(name, \"f%d\", i);"
        " int f = open(name, O_CREAT | O_WRONLY, 0600); if (f < 0) return 3; for (int j = 0; j < 16; j++)"
        " if (write(f, b, sizeof b) < 0) pause(); close(f); } return 0;",
        {Status.CRASHED},
        "code 3",
    ),
    "the common folders": (
        "static char b[1 << 20]; const char* at[] = {\"/tmp/x\", \"/dev/shm/x\"}; for (int i = 0; i < 2; i++) {"
        " int f = open(at[i], O_CREAT | O_WRONLY, 0600); for (int j = 0; j < 400; j++)"
        " if (write(f, b, sizeof b) < 0) break; close(f); } return 3;",
        {Status.CRASHED, Status.OUT_OF_MEMORY},
        "",
    ),
    "its log": ('for (;;) puts("all work and no play makes a long log");', {Status.CRASHED}, "printed"),
    "descriptors": (
        "while (open(\"/dev/null\", O_RDONLY) >= 0) { } return 3;", {Status.CRASHED}, ""
    ),
}  # fmt: skip


def held_bytes() -> int:
    """Memory of what this process has begun, in processes and shared: what others on this machine have is theirs."""
    held = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            held += child.memory_full_info().pss
    return held


@pytest.mark.parametrize("what", BOMBS)
def test_nothing_can_be_used_up(machine: Machine, tmp_path: Path, what: str) -> None:
    body, statuses, words = BOMBS[what]
    body = body if "return" in body else body + " return 0;"
    idle = "static void* idle(void* a) { for (;;) pause(); return a; }"
    source = f"{HELPERS}{idle}\nint opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) {{\n{body}\n}}\n"
    bomb = c_artifact(tmp_path, "bomb", machine.operator, machine.setting, source)
    outcome = machine.bench.measure(bomb, HASTY if Status.TIMED_OUT in statuses else PATIENT)
    assert outcome.status in statuses, outcome
    assert words in outcome.detail
    assert SECRET not in outcome.log_tail
    assert held_bytes() < 1 << 30 and not Path("/dev/shm/x").exists(), "it keeps nothing"
    honest = c_artifact(tmp_path, "honest", machine.operator, machine.setting)
    assert machine.bench.measure(honest).status in MEASURED
