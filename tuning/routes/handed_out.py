"""Routes that know all their candidates beforehand: a contest tries the first, tuning the rest in slices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import MOST_MEASURED, Budget, Candidate

AT_ONCE = 8
"""In a contest."""
HANDED_OUT = "handed-out.json"
"""How far the tuning of an operator has come."""


class HandsOut:
    """Of a route whose ``space(operator, target, setting)`` is every candidate, the most promising first."""

    def candidates(
        self: Any, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if self.supports(operator, setting):
            yield from islice(self.space(operator, target, setting), min(budget.candidates, AT_ONCE))

    def tune(
        self: Any, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """Those that no contest tried, as many a slice as are measured."""
        state = workdir / HANDED_OUT
        first = int(json.loads(state.read_text())) if state.exists() else AT_ONCE
        every = self.space(operator, target, setting) if self.supports(operator, setting) else iter(())
        found = list(islice(every, first, first + MOST_MEASURED))
        state.write_text(json.dumps(first + len(found)))
        yield from found
