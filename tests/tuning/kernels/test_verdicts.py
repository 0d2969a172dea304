"""What evaluations come to, as data."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tuning.kernels.verdicts import decide


@dataclass
class Ended:
    status: str
    detail: str = "so it was"
    ratio_to_default: float | None = 2.0
    operator: object = "Softmax"


@pytest.mark.parametrize(
    ("statuses", "state", "reason"),
    [
        (["ok"], "awaiting", "right on 1 operator, 2.00 to 2.00× the default"),
        (["ok", "slower", "ok"], "awaiting", "right on 3 operators"),
        (["ok", "unsupported"], "awaiting", "right on 1 operator,"),
        (["slower", "slower"], "failed", "much slower than the default on 2 operators"),
        (["unsupported"], "failed", "unsupported on Softmax: so it was"),
        (["noisy"], "noisy", "too noisy to time it on Softmax. Without times nobody can approve it"),
        (["ok", "noisy"], "noisy", "too noisy to time it on Softmax; right on 1 operator"),
        (["ok", "wrong_result", "noisy"], "failed", "wrong_result on Softmax"),
        (["noisy", "cheated"], "failed", "cheated on Softmax"),
        (["crashed", "ok"], "failed", "crashed on Softmax"),
        ([], "failed", "no operator"),
    ],
)
def test_only_what_is_ok_or_slower_everywhere_awaits(statuses: list[str], state: str, reason: str) -> None:
    found = decide([Ended(status) for status in statuses])
    assert found.state == state and reason in found.reason


def test_one_that_was_given_up_is_not_approved() -> None:
    assert decide([Ended("ok")], [Ended("", "its worker died")]).state == "failed"
