"""Memory as a long-running job has it, and no luck that lasts.

Where the system happens to map a process's memory decides for its whole life how long some calls take:
PyTorch's own 1×1 convolution of 256 to 64 channels takes 300 µs in one process and 510 µs in the next, and
never changes its mind. Forks of one zygote share much of that luck, so a worker would measure one of the two
for as long as it lives: with addresses at random 5 of 8 zygotes were slow in one of two convolutions. With
randomised addresses switched off in the zygote, and the heap moved by chance in each child, all 42 children
of 7 zygotes took the faster course.

And glibc decides by what was freed before whether a tensor of some megabytes is taken from the heap, or
mapped and faulted in page by page in every call.
"""

from __future__ import annotations

import ctypes
import random
import subprocess
from functools import cache

from tuning.measure.sandbox.programs import NoProgram, program

LARGEST_BYTES = 31 << 20
"""Below glibc's bound of 32 MiB: freeing so much once raises its threshold for mapping to that, as any job
does that has freed a weight or an activation of this size."""

HEAP_SHIFT_BYTES = 1 << 20


@cache
def fixed_addresses() -> tuple[str, ...]:
    """What to put in front of a command so that its addresses are not randomised; nothing where the system
    forbids it (some containers do)."""
    try:
        prefix = (program("setarch"), "--addr-no-randomize")
    except NoProgram:
        return ()
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    return prefix if allowed else ()


def settle_memory() -> None:
    """Raise glibc's thresholds to where they are in a job that has run for a while, and move the heap."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free(libc.malloc(LARGEST_BYTES))
    libc.malloc(64 * random.SystemRandom().randrange(64, HEAP_SHIFT_BYTES // 64))  # never given back
