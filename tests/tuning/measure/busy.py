"""What a busy host keeps from being told is tried again, and skipped where the host is seen to be busy."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from opatlas.noise import NOISY_SHARE, PRESSED_SHARE
from tuning.measure import procfs
from tuning.measure.outcome import Outcome, Status
from tuning.measure.timing.quiet import Turn

TRIES = 4
"""As a worker would try it again."""
LOOK_S, CALM_S = 0.25, 5.0
"""Whether others press for the CPUs, while nothing of ours runs; and how long the next try waits for them."""
PATIENCE_S = 60.0
"""Waited for them by one process in all; then a single try has to do: a host that is always busy shall not
make hours of a suite's minutes."""


@dataclass
class Patience:
    left_s: float = PATIENCE_S


_patience = Patience()


def undecided(outcome: Outcome) -> bool:
    """Whether a disturbed host can make anybody come to this: refused, but not for what was done."""
    used_up = outcome.status is Status.TIMED_OUT and outcome.detail == "used up its time"
    return used_up or outcome.status in (Status.NOISY, Status.SLOWER)


def decided(attempt: Callable[[], Outcome], enough: Callable[[Outcome], Any]) -> Outcome:
    """The first outcome that is ``enough``, or that no busy host explains; the last of all tries otherwise,
    which the caller asserts on. Skips the test instead where others were seen to press for the CPUs, or every
    try was disturbed."""
    busy = False
    for tries in itertools.count(1):
        outcome = attempt()
        if enough(outcome) or not undecided(outcome):
            return outcome
        began = time.monotonic()
        while _pressed():
            busy = True
            if time.monotonic() - began > min(CALM_S, _patience.left_s):
                break
        _patience.left_s -= time.monotonic() - began
        if tries == TRIES or (busy and _patience.left_s <= 0):
            break
    # Noisy is what the scheduler counted, a hypervisor's stealing too, which no look at an idle host shows.
    if busy or outcome.status is Status.NOISY:
        pytest.skip(f"a busy host told nothing in {tries} tries: {outcome.status}, {outcome.detail}")
    return outcome


def _pressed() -> bool:
    waited_us, turn = procfs.waiting_us(), Turn.start(os.getpid())
    time.sleep(LOOK_S)
    pressed = (procfs.waiting_us() - waited_us) / 1e6 / LOOK_S
    return pressed > PRESSED_SHARE or turn.disturbance() > NOISY_SHARE
