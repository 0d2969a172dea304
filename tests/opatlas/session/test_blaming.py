"""A kernel of the catalogue that gives other values on a caller's inputs: told, and left out."""

from __future__ import annotations

from typing import Any

import numpy as np

import opatlas
from opatlas.plan.plan import ByKernel
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import ADD
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, adding, kernels_win  # noqa: F401 - a fixture

WRONG_BEYOND_100 = ADD.replace("x[i] + y[i]", "x[i] + y[i] + (x[i] > 100.0f)")
LARGE = {name: 1000 * array for name, array in FEED.items()}


def test_it_is_found_reported_and_takes_no_part_any_more(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from tuning.models import FailureReport

    publish_add(source=WRONG_BEYOND_100)
    with opatlas.Session(adding(), client=job()) as session:
        assert any(isinstance(step.by, ByKernel) for step in session.plan.steps)
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert session.refused == {}
        assert_same(session.run(None, LARGE), wanted(adding(), LARGE))
        [(who, reason)] = session.refused.items()
        assert "by kernels" in who and reason.endswith("on the caller's inputs, in run 2")
        assert session.plan.kernels == []
        until(FailureReport.objects.exists)
    report = FailureReport.objects.get()
    assert report.error == "OtherValues" and reason in report.message
    with opatlas.Session(adding(), client=job()) as later:
        assert later.plan.kernels == [] and later.checks is None
        assert_same(later.run(None, LARGE), wanted(adding(), LARGE))


def test_what_no_kernel_alone_is_to_blame_for_is_left_out_as_a_whole(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
    monkeypatch: Any,
) -> None:
    from opatlas.session import session as module
    from tuning.models import FailureReport

    monkeypatch.setattr(module, "blamed_kernels", lambda *given: [])
    publish_add(source=WRONG_BEYOND_100)
    with opatlas.Session(adding(), client=job()) as session:
        assert_same(session.run(None, LARGE), wanted(adding(), LARGE))
    assert not FailureReport.objects.exists()
    with opatlas.Session(adding(), client=job()) as later:
        assert later.plan.kernels == []
        assert np.array_equal(later.run(None, LARGE)[0], wanted(adding(), LARGE)[0])
