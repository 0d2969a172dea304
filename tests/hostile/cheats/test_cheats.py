"""Every cheat is refused for its own reason; no honest kernel is, however odd it looks."""

from __future__ import annotations

import math
import platform
from typing import Any

import pytest

from tests.hostile.cheats.conftest import LIMITS, SHORT, Measure
from tests.hostile.cheats.document import CHEATS, PAGE, page
from tests.hostile.cheats.honest import BY_DAY, HONEST
from tests.hostile.cheats.table import Case, Cheat
from tests.tuning.measure.busy import decided
from tuning.measure.outcome import Outcome, Status
from tuning.measure.scrutiny.recomputation import MORE_US, SLACK_US

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its kernels are written for x86-64"),
]


LOOKS = 4
"""Processes, each on values of its own, that who is wrong on some kinds only may meet before one of these; of
the rarest kind all sets of one hold none one time in 400. Before it is served, it meets as many."""


def marked(cheat: Cheat) -> Any:
    """By day one cheat for each way of being caught; all of them by ``make test-cheats``, and nightly."""
    same = next(other for other in CHEATS if other.caught == cheat.caught)
    marks = [pytest.mark.alone] * cheat.by_a_clock + [pytest.mark.nightly] * (same is not cheat)
    return pytest.param(cheat, id=cheat.case.name, marks=marks)


@pytest.mark.parametrize("cheat", [marked(cheat) for cheat in CHEATS])
def test_a_cheat_is_refused_for_its_reason(measure: Measure, cheat: Cheat) -> None:
    case = cheat.case

    def found_out(outcome: Outcome) -> bool:
        return outcome.status in cheat.statuses and any(word in outcome.detail for word in cheat.words)

    def gained_nothing(outcome: Outcome) -> bool:
        """It counts as its runs on new values took, but for what is usual: so slow a host that its trick is
        worth no more."""
        new_us = outcome.facts.get("fresh_us", math.inf)
        gain_us = new_us - outcome.timing.median_us if outcome.timing else math.inf
        return cheat.by_a_clock and case.threads == 1 and gain_us < SLACK_US + MORE_US

    def refused() -> Outcome:
        limits = SHORT if Status.TIMED_OUT in cheat.statuses else LIMITS
        for _ in range(LOOKS if cheat.values else 1):
            if not (outcome := measure(case, limits)).ok:
                break
        assert not outcome.ok or gained_nothing(outcome), outcome  # however busy the host is
        return outcome

    def never_quiet(outcome: Outcome) -> bool:
        """Its runs on new values were noisy in each of three tries: nobody can approve it either."""
        noisy.append(outcome.status is Status.NOISY and "new values" in outcome.detail)
        return cheat.by_a_clock and len(noisy) >= 3 and all(noisy)

    noisy: list[bool] = []
    outcome = decided(refused, lambda outcome: found_out(outcome) or never_quiet(outcome))
    if len(noisy) >= 3 and all(noisy):
        return
    if outcome.ok:
        return  # gained nothing
    if outcome.status is Status.SLOWER and not found_out(outcome):
        pytest.skip(f"on this host its trick does not pay: {outcome.detail}")  # nobody would serve it
    assert found_out(outcome), outcome


@pytest.mark.alone
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.nightly] * (case.name not in BY_DAY))
        for case in HONEST
    ],
)
def test_an_honest_kernel_is_not_refused(measure: Measure, case: Case) -> None:
    def judged(outcome: Outcome) -> bool:
        # Who was timed went through every check, however noisily; else it was the default that broke.
        return outcome.timing is not None or outcome.status is Status.SLOWER

    outcome = decided(lambda: measure(case, LIMITS), judged)
    assert outcome.status in (Status.OK, Status.SLOWER, Status.NOISY), outcome


def test_the_page_lists_this_suite() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.hostile.cheats.document"


def test_there_are_enough_and_no_two_have_one_name() -> None:
    names = [case.name for case in (*(cheat.case for cheat in CHEATS), *HONEST)]
    assert len(names) == len(set(names))
    assert len(CHEATS) >= 40
    assert len(HONEST) >= 40
    assert set(BY_DAY) <= set(names)
