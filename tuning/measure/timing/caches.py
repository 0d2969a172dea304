"""Making caches cold: every core touches more than they hold."""

from __future__ import annotations

import os
import threading

import numpy as np

from opatlas.identity import Target

LEAST_BYTES = 32 << 20


def evicting_bytes(target: Target) -> int:
    """Twice the last-level cache: who writes so much leaves nothing else in it."""
    return 2 * max((size for _, size in target.cache_bytes), default=LEAST_BYTES)


class CacheFlusher:
    """A buffer of twice the machine's last-level cache, walked by one pinned thread per core."""

    def __init__(self, target: Target) -> None:
        self._buffer = np.zeros(evicting_bytes(target) // 8, np.int64)

    def flush(self) -> None:
        """Evict what the caches hold (the private ones too: hence a thread on every core)."""
        cpus = sorted(os.sched_getaffinity(0))
        threads = [threading.Thread(target=self._walk, args=(cpu,)) for cpu in cpus]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _walk(self, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})  # of this thread only
        self._buffer[::8] += 1
