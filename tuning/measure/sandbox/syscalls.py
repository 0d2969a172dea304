"""What a sandboxed process may ask of the kernel: filters compiled by libseccomp, loaded by bubblewrap.

Two of them. ``built`` holds for everything in tier T2, compilers included; ``running`` is laid on top in a
child that runs compiled code, just before it loads it. Both are lists of what is allowed: what is not on them
does not exist (``ENOSYS``, so that glibc falls back to older calls as on an older kernel; ``clone3`` for
instance, whose flags no filter can see), and what the kernel learns next year is not there either. What only
somebody asks for who wants to get out (``_TRESPASSES``) ends a running child by SIGSYS, which is a verdict;
so do calls by another architecture's numbers (i386, x32), in both.

Linux before 5.16 slows every process with a filter down (speculative store bypass); the default under
measurement has the same filter as its candidates.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from functools import cache

from tuning.measure.sandbox import wire

_CLONE_NEW = 0x7E020080  # NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_CLONE_THREAD = 0x00010000
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE
_WORD = 0xFFFFFFFF  # of an int, the kernel looks at the lower half of the register only
_WRITING = 0o3 | 0o100 | 0o1000 | 0o20000000  # O_ACCMODE, O_CREAT, O_TRUNC, the bit that makes O_TMPFILE
_OWN = 0x7FFFFFF1  # stands for the process's own number, which no process can have

_FILES = """
access chdir chmod close close_range copy_file_range dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
fchdir fchmod fchmodat fchown fdatasync fgetxattr flistxattr flock fstat fstatfs fsync ftruncate
getcwd getdents getdents64 getxattr lgetxattr link linkat listxattr llistxattr lseek lstat mkdir mkdirat
mknod mknodat newfstatat pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statx symlink symlinkat
sync_file_range tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev chown
fchownat lchown creat
"""
_MEMORY = """
brk get_mempolicy madvise mbind membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap
msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages set_mempolicy
cachestat map_shadow_stack mseal
"""
_TIME = """
alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
"""
_WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_waitv
futex_wake futex_wait futex_requeue pause pipe pipe2 poll ppoll pselect6 restart_syscall select signalfd
signalfd4 rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack
"""
_SELF = """
arch_prctl capget exit exit_group getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid getuid get_robust_list
get_thread_area prctl riscv_flush_icache rseq sched_getaffinity sched_getattr sched_getparam
sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_yield
set_robust_list set_thread_area set_tid_address setrlimit sysinfo uname
"""
_TALKING = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg
sendmsg sendto setsockopt shutdown
"""
_PROCESSES = """
execve execveat fork kill rt_sigqueueinfo rt_tgsigqueueinfo sched_setaffinity sched_setattr sched_setparam
sched_setscheduler setpgid setpriority setsid tgkill tkill vfork wait4 waitid capset ioprio_get
"""
# For setpriv, which becomes the sandbox's user; without capabilities they change nothing.
_IDENTITY = "setfsgid setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid"

# FIONBIO, FIONREAD, FIOCLEX, FIONCLEX, FICLONE, TCGETS, TIOCGWINSZ, TIOCGPGRP: no TIOCSTI, no device's own.
_IOCTLS = (0x5421, 0x541B, 0x5451, 0x5450, 0x40049409, 0x5401, 0x5413, 0x540F)
# Of a device's files: the driver's own kind ("F"), and unified memory's, which have no kind at all.
_DEVICE_IOCTLS = ((0x4600, 0xFF00), (0x0000, 0xFFFFFF00), (0x30000001, _WORD), (0x30000002, _WORD))
# DUPFD, GETFD, SETFD, GETFL, SETFL, DUPFD_CLOEXEC, SETPIPE_SZ, GETPIPE_SZ, ADD_SEALS, GET_SEALS. Not SETOWN
# and SETSIG: with them a write to a pipe sends any signal to any process.
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1031, 1032, 1033, 1034)
_LOCKS = (5, 6, 7, 36, 37, 38)  # GETLK, SETLK, SETLKW and those of open files: compilers' caches

# What a kernel needs no more of the above once it runs: to make, change or lock files, to wait for processes.
_NOT_RUNNING = """
chdir chmod copy_file_range fallocate fchdir fchmod fchmodat fchown flock link linkat mkdir mkdirat mknod
mknodat rename renameat renameat2 rmdir splice symlink symlinkat tee truncate unlink unlinkat utime utimensat
utimes vmsplice chown fchownat lchown creat set_mempolicy remap_file_pages mlockall capget umask
"""
_TRESPASSES = """
add_key bpf chroot execve execveat fork fsopen init_module finit_module io_uring_setup kcmp kexec_load keyctl
mount move_mount open_by_handle_at open_tree perf_event_open pidfd_getfd pidfd_send_signal pivot_root
process_vm_readv process_vm_writev ptrace reboot request_key setns socket socketpair swapon umount2 unshare
userfaultfd vfork
"""
_RUNNING_TALK = "recvfrom recvmsg sendmsg sendto getsockopt getsockname"


class NoFilter(Exception):
    """libseccomp is not here, or refuses: one sentence."""


def why_not() -> str | None:
    """None where filters can be compiled and this kernel loads them, else one sentence."""
    try:
        built(), running_template()
    except NoFilter as error:
        return str(error)
    return None


@cache
def built(devices: bool = False) -> bytes:
    """The filter of every process in tier T2: BPF instructions. ``devices``: of one that sees a GPU's files.
    Raises :class:`NoFilter`."""
    rules = _Rules()
    rules.allow(_FILES, _MEMORY, _TIME, _WAITING, _SELF, _TALKING, _PROCESSES, _IDENTITY)
    rules.allow("open openat")
    rules.allow_if("clone", (0, _CLONE_NEW, 0))
    for family in ("socket", "socketpair"):
        rules.allow_if(family, (0, _WORD, socket.AF_UNIX))
        rules.refuse_if_not(family, 0, socket.AF_UNIX, errno.EAFNOSUPPORT)
    for command in (*_FCNTLS, *_LOCKS):
        rules.allow_if("fcntl", (1, _WORD, command))
    for command in _IOCTLS:
        rules.allow_if("ioctl", (1, _WORD, command))
    for value, mask in _DEVICE_IOCTLS if devices else ():
        rules.allow_if("ioctl", (1, mask, value))
    rules.allow_if("prlimit64", (0, _WORD, 0))
    for personality in (_FIXED_ADDRESSES, _WORD):  # setarch's, and the question what it is
        rules.allow_if("personality", (0, _WORD, personality))
    return rules.compiled()


@cache
def running_template() -> bytes:
    """The filter of a child that runs compiled code, with a number that stands for its own."""
    rules = _Rules()
    for names in (_FILES, _MEMORY, _TIME, _WAITING, _SELF):
        rules.allow(*(name for name in names.split() if name not in _NOT_RUNNING.split()))
    rules.allow(_RUNNING_TALK)
    rules.allow_if("open", (1, _WRITING, 0))
    rules.allow_if("openat", (2, _WRITING, 0))
    rules.allow_if("clone", (0, _CLONE_NEW | _CLONE_THREAD, _CLONE_THREAD))
    rules.kill_if("clone", rules.library.MASKED_EQ, 0, _CLONE_THREAD, 0)
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        rules.allow_if(name, (0, _WORD, _OWN))
        rules.kill_if(name, rules.library.NE, 0, _OWN)
    for name in _TRESPASSES.split():
        rules.kill_if(name)
    # Its own thread only (0): others of its user are the zygote's and its rivals'.
    for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64"):
        rules.allow_if(name, (0, _WORD, 0))
    rules.allow_if("setpriority", (0, _WORD, 0), (1, _WORD, 0))
    for command in _FCNTLS:
        rules.allow_if("fcntl", (1, _WORD, command))
    for command in _IOCTLS:
        rules.allow_if("ioctl", (1, _WORD, command))
    return rules.compiled()


def restrict_to_running(template: bytes, pid: int) -> None:
    """Lay ``running`` on this process, for good. ``pid``: its own number, as it sees it. Raises OSError."""
    entry = struct.Struct("HBBI")
    program = b"".join(
        entry.pack(code, yes, no, pid if value == _OWN else value)
        for code, yes, no, value in entry.iter_unpack(template)
    )
    lines = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    given = Program(len(program) // entry.size, ctypes.addressof(lines))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, "the filter for running code is refused")


_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Rules:
    """A list of what is allowed, in libseccomp's hands."""

    def __init__(self) -> None:
        try:
            import pyseccomp
        except (ImportError, OSError, RuntimeError) as error:
            raise NoFilter(
                f"libseccomp cannot be loaded ({error}): apt-get install libseccomp2, pip install pyseccomp"
            ) from error
        self.library = pyseccomp
        self.filter = pyseccomp.SyscallFilter(defaction=pyseccomp.ERRNO(errno.ENOSYS))
        self.filter.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)

    def allow(self, *names: str) -> None:
        for name in " ".join(names).split():
            self.allow_if(name)

    def allow_if(self, name: str, *conditions: tuple[int, int, int]) -> None:
        """Allow where each (argument, mask, value) holds."""
        arguments = [
            self.library.Arg(number, self.library.MASKED_EQ, mask, value)
            for number, mask, value in conditions
        ]
        if (number := self._number(name)) is not None:
            self.filter.add_rule_exactly(self.library.ALLOW, number, *arguments)

    def kill_if(self, name: str, *condition: int) -> None:
        """End the process for it; ``condition``: comparison and its numbers, as libseccomp takes them."""
        comparison = [self.library.Arg(condition[1], condition[0], *condition[2:])] if condition else []
        if (number := self._number(name)) is not None:
            self.filter.add_rule(self.library.KILL_PROCESS, number, *comparison)

    def _number(self, name: str) -> int | None:
        """Its number here; None for a call that this architecture lacks or libseccomp does not know."""
        try:
            number = int(self.library.resolve_syscall(self.library.Arch.NATIVE, name))
        except (ValueError, OSError):
            return None
        return number if number >= 0 else None

    def refuse_if_not(self, name: str, argument: int, value: int, error: int) -> None:
        """Answer with an error of its own where an argument has another value."""
        other = self.library.Arg(argument, self.library.NE, value)
        self.filter.add_rule(self.library.ERRNO(error), self._number(name), other)

    def compiled(self) -> bytes:
        """The instructions."""
        with os.fdopen(wire.memory_file("filter"), "w+b") as file:
            try:
                self.filter.export_bpf(file)
            except OSError as error:
                raise NoFilter(f"libseccomp refuses the filter: {error}") from error
            file.seek(0)
            return file.read()
