"""What came of a candidate: data, failures included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from opatlas.evidence import CHECKS, Evidence, figures_of


class Status(StrEnum):
    OK = "ok"
    UNSUPPORTED = "unsupported"  # the route cannot express the operator
    BUILD_FAILED = "build_failed"
    LOAD_FAILED = "load_failed"
    CRASHED = "crashed"  # a signal, or an exit nobody asked for
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    NOT_FINITE = "not_finite"  # NaN or infinity where the reference has none, or the other way round
    WROTE_INPUT = "wrote_input"
    SLOWER = "slower"  # three times slower than the default after three samples: stopped
    CHEATED = "cheated"  # faster than the roofline allows, work after the answer, stale outputs
    NOISY = "noisy"  # the host never became quiet enough to measure


@dataclass(frozen=True)
class Outcome:
    """Status, and as much evidence as there is for it."""

    status: Status
    detail: str = ""
    timing: Evidence | None = None
    max_error: float | None = None
    tolerance: float | None = None
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    peak_bytes: int | None = None
    build_s: float | None = None
    tier: str = ""  # sandbox tier: "T2", "T1", "T0"
    log_tail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    incumbent: Outcome | None = None  # what came of who ran in turns with it, in the same rounds
    against_incumbent: Evidence | None = None  # the same rounds with the incumbent as the default

    @property
    def evidence(self) -> Evidence:
        """Of one that was timed: its times, and all else that is published with them."""
        assert self.timing is not None
        return replace(self.timing, **figures_of(self, CHECKS))

    @property
    def ok(self) -> bool:
        return self.status is Status.OK
