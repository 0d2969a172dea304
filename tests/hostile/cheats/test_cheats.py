"""Every cheat is refused for its own reason; no honest kernel is, however odd it looks."""

from __future__ import annotations

import platform

import pytest

from tests.hostile.cheats.conftest import Measure
from tests.hostile.cheats.honest import HONEST
from tests.hostile.cheats.incomplete import INCOMPLETE
from tests.hostile.cheats.remembering import REMEMBERING
from tests.hostile.cheats.table import Case, Cheat
from tests.hostile.cheats.trespassing import TRESPASSING
from tuning.measure.outcome import Status

CHEATS = (*INCOMPLETE, *REMEMBERING, *TRESPASSING)
TRIES = 4
"""Of an honest kernel that a busy host made unmeasurable, as a worker would try it again."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its kernels are written for x86-64"),
]


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.case.name)
def test_a_cheat_is_refused_for_its_reason(measure: Measure, cheat: Cheat) -> None:
    outcome = measure(cheat.case)
    assert outcome.status in cheat.statuses, outcome
    assert any(word in outcome.detail for word in cheat.words), outcome.detail


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_kernel_is_not_refused(measure: Measure, case: Case) -> None:
    for _ in range(TRIES):
        outcome = measure(case)
        if outcome.status is not Status.NOISY:
            break
    assert outcome.status in (Status.OK, Status.SLOWER, Status.NOISY), outcome


def test_there_are_enough_and_no_two_have_one_name() -> None:
    names = [case.name for case in (*(cheat.case for cheat in CHEATS), *HONEST)]
    assert len(names) == len(set(names))
    assert len(CHEATS) >= 40
    assert len(HONEST) >= 40
