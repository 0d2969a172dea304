"""Forking where the service is served by threads of the same process."""

from __future__ import annotations

import faulthandler
import os

from opatlas.plan.resting import OtherThreads

LONGEST_S = 120


def fork() -> int:
    """``os.fork()`` once the service's threads sleep: it uses the same SQLite as clients do here, whose own
    locks a child never gets back. A child that hangs all the same says where, and ends."""
    OtherThreads().wait()
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    return child
