"""Risk lines: what was seen of a kernel, in words, with how grave it is. PURE; a test for each line.

The lines tell an approver where to look. None of them is a verdict: honest kernels have reasons too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tuning.measure.machine_code import NOTABLE
from tuning.measure.observing.source import SourceFinding

Severity = Literal["grave", "serious", "note", "fine"]
SEVERITIES: tuple[Severity, ...] = ("grave", "serious", "note", "fine")
"""The gravest first; how the page calls them: "look closely", "ask why", "good to know", "fine"."""
GROWN_BYTES = 64 << 20
LARGE_DATA = 64 << 10


_LIBRARY = re.compile(r"(/usr)?/lib(N+)?(/[\w+-]+)?/lib[\w+-]+\.so(\.N)*")
_LINKER = "/etc/ld.so.cache"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEMORY = _words(
    "mmap munmap mremap brk madvise mprotect mincore mlock munlock mbind set_mempolicy get_mempolicy"
)
_WAITING = _words(
    "futex futex_wait futex_wake sched_yield restart_syscall rt_sigreturn set_robust_list "
    "rseq gettid exit exit_group set_tid_address rt_sigprocmask"
)
_CLOCKS = _words("clock_gettime gettimeofday time times clock_nanosleep nanosleep getrusage")
_FILES = _words(
    "open openat openat2 creat read pread64 readv write pwrite64 writev close lseek stat "
    "lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat unlink "
    "unlinkat mkdir mkdirat rename renameat renameat2 getdents64 ftruncate truncate "
    "fallocate fsync sendfile copy_file_range dup dup2 dup3 fcntl ioctl pipe pipe2 "
    "memfd_create inotify_init1 flock chdir getcwd"
)
_NETWORK = _words(
    "socket socketpair connect bind listen accept accept4 sendto recvfrom sendmsg recvmsg "
    "sendmmsg recvmmsg shutdown getsockname getpeername setsockopt getsockopt"
)
_SIGNALS = _words(
    "kill tkill tgkill rt_sigaction rt_sigqueueinfo sigaltstack timer_create "
    "timer_settime setitimer alarm signalfd4"
)
_SCHEDULING = _words(
    "sched_setaffinity sched_getaffinity sched_setscheduler setpriority getpriority "
    "getcpu prlimit64 membarrier personality"
)
_ALARMING = _words(
    "ptrace process_vm_readv process_vm_writev userfaultfd perf_event_open bpf "
    "io_uring_setup io_uring_enter keyctl add_key mount umount2 setns unshare pivot_root "
    "chroot init_module finit_module kexec_load memfd_secret shmget shmat msgget semget "
    "execve execveat prctl arch_prctl seccomp pidfd_open pidfd_getfd capset setuid setgid"
)

_IMPORTS: tuple[tuple[Severity, str, frozenset[str]], ...] = (
    (
        "grave",
        "starts programs",
        _words(
            "system popen posix_spawn posix_spawnp execl execv execve execvp execlp execle fork vfork clone"
        ),
    ),
    (
        "grave",
        "finds functions by their names at run time",
        _words("dlopen dlsym dlvsym dlmopen dl_iterate_phdr getauxval"),
    ),
    ("grave", "calls the system directly", frozenset(["syscall"])),
    (
        "grave",
        "makes memory executable, or reads another process",
        _words("mprotect pkey_mprotect process_vm_readv process_vm_writev ptrace prctl"),
    ),
    (
        "serious",
        "reads the clock",
        _words(
            "clock_gettime gettimeofday time clock times timespec_get nanosleep clock_nanosleep usleep sleep"
        ),
    ),
    ("serious", "starts threads of its own", _words("pthread_create thrd_create pthread_attr_init")),
    (
        "serious",
        "opens files",
        _words(
            "open open64 openat fopen fopen64 freopen opendir fdopen mmap mmap64 shm_open "
            "memfd_create read write pread pwrite fread fwrite"
        ),
    ),
    (
        "serious",
        "uses the network",
        _words("socket connect bind listen accept send recv sendto recvfrom getaddrinfo"),
    ),
    (
        "serious",
        "handles signals or jumps out of calls",
        _words(
            "signal sigaction raise kill pthread_kill setjmp _setjmp __sigsetjmp longjmp "
            "siglongjmp alarm setitimer timer_create"
        ),
    ),
    (
        "serious",
        "asks where and as what it runs",
        _words(
            "getenv secure_getenv getpid gettid sched_getcpu sched_setaffinity sched_getaffinity "
            "setpriority nice backtrace uname gethostname sysconf get_nprocs"
        ),
    ),
    ("note", "prints", _words("printf puts vprintf fprintf __printf_chk __fprintf_chk perror putchar")),
    (
        "note",
        "leaves something to do at exit",
        _words("atexit __cxa_atexit on_exit pthread_key_create pthread_atfork"),
    ),
)

_INSTRUCTIONS: tuple[tuple[Severity, str, str], ...] = (
    ("grave", "has system calls of its own in its machine code", "system call"),
    ("serious", "reads the processor's clock in its machine code", "clock"),
    ("serious", "reads performance counters", "performance counter"),
    ("serious", "flushes the cache", "cache flush"),
    ("serious", "changes the thread's pointers", "thread pointer"),
    ("serious", "sets the rounding mode", "rounding mode"),
    ("note", "asks what processor it runs on", "processor identification"),
    ("note", "draws random numbers", "random number"),
)
"""How grave, the line, and what the instructions are for (``machine_code.NOTABLE``)."""

_SOURCE: dict[str, tuple[Severity, str]] = {
    "assembly": ("serious", "writes assembly in its source"),
    "incbin": ("grave", "embeds a file while it is compiled"),
    "attributes": ("grave", "asks to be run while it is loaded, or for a place of its own"),
    "syscall": ("grave", "names system calls in its source"),
    "dynamic": ("grave", "looks for functions by their names in its source"),
    "threads": ("grave", "names threads or processes in its source"),
    "clock": ("serious", "names a clock in its source"),
    "files": ("serious", "names files or mappings in its source"),
    "network": ("grave", "names the network in its source"),
    "signals": ("serious", "names signals, timers or long jumps in its source"),
    "protection": ("grave", "names memory protection or other processes in its source"),
    "environment": ("serious", "asks in its source where it runs"),
    "code_from_data": ("grave", "calls data as a function"),
    "tables": ("serious", "holds large tables of constants, as stored answers would be"),
    "long_texts": ("serious", "holds long texts, as stored data would be"),
}


@dataclass(frozen=True)
class Risk:
    """One line: how grave, and what."""

    severity: Severity
    text: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def risks_of_run(observed: Mapping[str, Any]) -> list[Risk]:
    """Of an untimed run that was watched (``watching.observe``), or that could not be."""
    if why_not := observed.get("why_not"):
        return [Risk("serious", f"what it asks of the system was not observed: {why_not}")]
    if "device" in observed:
        return list(_of_device(observed["device"]))
    lines = list(_of_calls(observed))
    return lines or [Risk("fine", "computes only: no system call beside memory while it was observed")]


def _of_device(used: Mapping[str, Any]) -> Iterator[Risk]:
    yield Risk("fine", "is device code only: nothing of it runs on the host")
    for name, one in sorted(used.items()):
        if spilled := int(one.get("spilled_bytes", 0)):
            yield Risk("note", f"{name} spills {spilled} bytes of registers a thread")


def risks_of_code(code: Mapping[str, Any]) -> list[Risk]:
    """Of machine code (``tuning.measure.machine_code.describe``)."""
    if why_not := code.get("why_not"):
        return [Risk("serious", f"its machine code was not disassembled: {why_not}")]
    return list(_of_code(code)) or [Risk("fine", "its machine code calls nothing but mathematics and memory")]


def risks_of_source(found: Sequence[SourceFinding]) -> list[Risk]:
    """Of the source's text."""
    lines = [Risk(*_line(finding)) for finding in found]
    return lines or [Risk("fine", "nothing stands out in its source")]


def ordered(risks: Sequence[Risk]) -> list[Risk]:
    """Each once, the gravest first."""
    return sorted(dict.fromkeys(risks), key=lambda risk: SEVERITIES.index(risk.severity))


def _line(finding: SourceFinding) -> tuple[Severity, str]:
    severity, text = _SOURCE[finding.name]
    return severity, f"{text}: {finding.what}"


def _of_calls(observed: Mapping[str, Any]) -> Iterator[Risk]:
    calls: Mapping[str, int] = observed.get("calls", {})
    runs = max(1, int(observed.get("runs", 1)))
    if failed := observed.get("failed"):
        yield Risk("grave", f"did not come to its end while it was observed: {failed}")
    if started := observed.get("processes"):
        yield Risk("grave", f"starts processes: {started}")
    if started := observed.get("threads"):
        yield Risk("serious", f"starts threads: {started}")
    if observed.get("executable"):
        yield Risk("grave", "makes memory executable")
    yield from _of_family(calls, _ALARMING, "grave", "asks the system for what no kernel needs", runs)
    yield from _of_family(calls, _NETWORK, "grave", "uses the network or sockets", runs)
    paths = observed.get("paths", [])
    libraries = [path for path in paths if _LIBRARY.fullmatch(path)]
    if libraries:
        names = ", ".join(sorted(path.rpartition("/")[2] for path in libraries))
        yield Risk("note", f"has system libraries loaded: {names[:200]}")
    if int(observed.get("mapped_code", 0)) > len(libraries):
        yield Risk("grave", "maps code that is no system library's")
    others = [path for path in paths if path not in libraries and path != _LINKER]
    yield from _of_files(calls, others, bool(libraries), runs)
    yield from _of_family(calls, _CLOCKS, "serious", "reads the clock or sleeps", runs)
    yield from _of_family(calls, _SIGNALS, "serious", "handles or sends signals", runs)
    if signals := observed.get("signals"):
        yield Risk("serious", f"gets signals: {_counted(signals)}")
    yield from _of_family(calls, _SCHEDULING, "serious", "asks where it runs, or changes it", runs)
    known = _MEMORY | _WAITING | _CLOCKS | _FILES | _NETWORK | _SIGNALS | _SCHEDULING | _ALARMING
    unknown = {name: count for name, count in calls.items() if name not in known | _STARTS}
    if unknown:
        yield Risk("serious", f"calls the system otherwise: {_counted(unknown)}")
    if observed.get("uncounted"):
        yield Risk("serious", "makes more system calls than were counted")
    grown = int(observed.get("grown_bytes", 0))
    if grown > GROWN_BYTES:
        yield Risk("note", f"grows by {grown >> 20} MiB beside its inputs and outputs")
    if sum(count for name, count in calls.items() if name in _MEMORY) >= runs * 2:
        yield Risk("note", "asks for memory in every call")


_STARTS = _words("clone clone3 fork vfork")


def _of_family(
    calls: Mapping[str, int], names: frozenset[str], severity: Severity, text: str, runs: int
) -> Iterator[Risk]:
    mine = {name: count for name, count in calls.items() if name in names}
    if mine:
        often = " in every call" if max(mine.values()) >= runs else ""
        yield Risk(severity, f"{text}{often}: {_counted(mine)}")


def _of_files(calls: Mapping[str, int], paths: Sequence[str], linked: bool, runs: int) -> Iterator[Risk]:
    if paths:
        yield Risk("grave", f"opens files: {', '.join(repr(path) for path in paths[:8])[:300]}")
    elif linked and max((count for name, count in calls.items() if name in _FILES), default=0) < runs:
        return  # what the dynamic linker reads
    elif any(name in _FILES for name in calls):
        yield from _of_family(calls, _FILES, "serious", "reads or writes files", runs)


def _of_code(code: Mapping[str, Any]) -> Iterator[Risk]:
    imports = set(code.get("imports", ()))
    for severity, text, names in _IMPORTS:
        if mine := sorted(imports & names):
            yield Risk(severity, f"its machine code {text}: {', '.join(mine)[:200]}")
    notable: Mapping[str, int] = code.get("notable", {})
    for severity, text, purpose in _INSTRUCTIONS:
        if found := {name: notable[name] for name in NOTABLE if NOTABLE[name] == purpose and name in notable}:
            yield Risk(severity, f"{text}: {_counted(found)}")
    if constructors := code.get("constructors"):
        yield Risk("grave", f"runs code while it is loaded: {constructors} constructors or resolvers")
    if (size := int(code.get("data_bytes", 0))) > LARGE_DATA:
        yield Risk("serious", f"brings {size >> 10} KiB of data, as stored answers would be")
    if left_out := code.get("left_out"):
        yield Risk("note", f"its machine code is long: {left_out} functions are not shown")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}×" for name, count in sorted(counts.items(), key=lambda one: -one[1]))[
        :300
    ]
