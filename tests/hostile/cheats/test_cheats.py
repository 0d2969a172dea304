"""Every cheat is refused for its own reason; no honest kernel is, however odd it looks."""

from __future__ import annotations

import platform

import pytest

from tests.hostile.cheats.conftest import Measure
from tests.hostile.cheats.document import CHEATS, PAGE, page
from tests.hostile.cheats.honest import HONEST
from tests.hostile.cheats.table import Case, Cheat
from tuning.measure.outcome import Status

TRIES = 4
"""Of a kernel that a busy host made unmeasurable, as a worker would try it again."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its kernels are written for x86-64"),
]


@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, id=cheat.case.name, marks=[pytest.mark.alone] if cheat.by_a_clock else [])
        for cheat in CHEATS
    ],
)
def test_a_cheat_is_refused_for_its_reason(measure: Measure, cheat: Cheat) -> None:
    for _ in range(TRIES):
        outcome = measure(cheat.case)
        # Who seems slow on a busy host is looked at no further: it wins nothing.
        if outcome.status in cheat.statuses or outcome.status not in (Status.NOISY, Status.SLOWER):
            break
    assert outcome.status in cheat.statuses, outcome
    assert any(word in outcome.detail for word in cheat.words), outcome.detail


@pytest.mark.alone
@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.name)
def test_an_honest_kernel_is_not_refused(measure: Measure, case: Case) -> None:
    for _ in range(TRIES):
        outcome = measure(case)
        # Who was timed went through every check, however noisily; else it was the default that broke.
        if outcome.status is not Status.NOISY or outcome.timing is not None:
            break
    assert outcome.status in (Status.OK, Status.SLOWER, Status.NOISY), outcome


def test_the_page_lists_this_suite() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.hostile.cheats.document"


def test_there_are_enough_and_no_two_have_one_name() -> None:
    names = [case.name for case in (*(cheat.case for cheat in CHEATS), *HONEST)]
    assert len(names) == len(set(names))
    assert len(CHEATS) >= 40
    assert len(HONEST) >= 40
