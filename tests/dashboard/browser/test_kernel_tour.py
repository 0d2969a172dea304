"""A kernel's whole way in a browser, on a real worker: submitted, measured, approved by another user, in the
contest on the operator's page, revoked, and the best falls back."""

from __future__ import annotations

from typing import Any

import pytest

from opatlas.identity import detect_target, parse_operator
from tests.dashboard.serving import follow, log_in, serving
from tests.tuning.live import Live, look_up
from tuning.kernels.shipped import examples
from tuning.routes.manual.cpp import missing_features

# A kernel that is to win has to be timed: not beside another worker's tests. Nightly: by day the same way is
# gone by REST (tests/tuning/kernels/test_live.py), and the pages' forms and decisions have their own tests.
pytestmark = [pytest.mark.nightly, pytest.mark.timing, pytest.mark.slow, pytest.mark.browser]

SOFTMAX = parse_operator({"op": "Softmax", "inputs": [{"shape": [64, 200], "dtype": "float32"}]})


def logged_in(browser: Any, url: str, name: str) -> Any:
    page = browser.new_context(base_url=url, reduced_motion="reduce").new_page()
    page.set_default_timeout(60_000)
    log_in(page, name)
    return page


def test_submit_measure_approve_win_or_lose_and_revoke(live_service: Live, chromium: Any) -> None:
    from django.core.wsgi import get_wsgi_application

    from tests.dashboard.kernels import SUBMISSION, person
    from tuning.kernels.models import KernelVersion
    from tuning.models import Exploration, State, Trial

    person("ada"), person("grace", decides=True)
    live_service.start_worker()
    live_service.wait_warm(timeout_s=120)
    look_up(SOFTMAX)
    live_service.wait_for(lambda: Exploration.objects.filter(state=State.DONE).exists(), "the contest", 300)
    shipped = [one for one in examples() if one.name.startswith("softmax")]
    able = [one for one in shipped if not missing_features(one.flags, detect_target())] or [SUBMISSION]

    with serving(get_wsgi_application()) as url:
        ada, grace = logged_in(chromium, url, "ada"), logged_in(chromium, url, "grace")
        ada.get_by_role("link", name="Kernels", exact=True).click()
        ada.get_by_role("link", name="Submit a kernel").first.click()
        for field, text in {
            "name": "my-softmax",
            "source": able[0].source,
            "operators": "Softmax",
            "constraints": '{"inputs": [{"dtype": "float32", "contiguous": true}]}',
            "flags": " ".join(able[0].flags),
            "author": "Ada",
            "licence": "MIT",
        }.items():
            ada.fill(f"[name={field}]", text)
        ada.get_by_role("button", name="Submit", exact=True).click()
        ada.wait_for_url("**/kernels/*/v1/")
        # The page follows the worker by itself, and shows the evidence when it is there.
        ended = ".state-line .badge:has-text('awaiting approval'), .state-line .badge:has-text('noisy')"
        for _ in range(3):  # on a busy machine its submitter asks again
            ada.wait_for_selector(ended, timeout=180_000)
            again = ada.get_by_role("button", name="Evaluate again")
            if not again.count():
                break
            follow(ada, again)
        ada.wait_for_selector(".state-line .badge >> text=awaiting approval", timeout=180_000)
        evidence = ada.locator("main").inner_text()
        assert "Softmax" in evidence and "allowed" in evidence
        assert ada.get_by_role("button", name="Approve").count() == 0  # not her own

        version = KernelVersion.objects.get()
        grace.goto("/kernels/")
        assert "1 waits for your decision" in grace.locator("main").inner_text()
        follow(grace, grace.get_by_role("link", name="my-softmax"))
        grace.locator("#decision summary").click()
        for piece in grace.locator("[name=looked_at]").all():
            piece.check()
        grace.fill("[name=reason]", "Read and understood.")
        grace.get_by_role("button", name="Approve").click()
        grace.wait_for_selector(".state-line .badge >> text=approved")

        def contested() -> Any:
            ended = Exploration.objects.filter(state=State.DONE, pending_routes="").exists()
            return ended and Trial.objects.filter(route="cpp", label=version.label).first()

        trial = live_service.wait_for(contested, "the kernel's contest", 300)
        assert trial.status in ("ok", "noisy", "slower"), trial.detail
        grace.wait_for_selector("#standing tbody tr", timeout=30_000)  # it appears without a reload
        (hit,) = look_up(SOFTMAX)
        assert hit.status == "hit"
        won, standing = hit.best.route == "cpp", grace.locator("#standing tbody")
        live_service.wait_for(lambda: ("best" in standing.inner_text()) == won, "the page to say so", 30)
        grace.goto(f"/operators/{SOFTMAX.key}/")
        assert version.label in grace.locator("main").inner_text()

        grace.goto(f"/kernels/{version.kernel_id}/")
        grace.fill("[name=reason]", "A bug was found.")
        grace.get_by_role("button", name="Revoke").click()
        grace.wait_for_selector(".state-line .badge >> text=revoked")
        assert look_up(SOFTMAX)[0].best.route != "cpp"
        grace.goto(f"/operators/{SOFTMAX.key}/")
        assert "cpp" not in grace.locator("dl.figures").inner_text()
        ada.reload()
        history = ada.locator("ol.timeline").inner_text()
        assert "A bug was found." in history and "Read and understood." in history and "ada" in history
