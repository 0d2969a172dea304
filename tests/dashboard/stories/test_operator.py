"""An operator of the service is alerted to a broken route and mends it: a real worker's compiler is taken
away and given back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opatlas.identity import default_setting, detect_target, parse_operator
from opatlas.load.toolchain import find_compiler
from tests.dashboard.browser.conftest import open_window
from tests.dashboard.serving import follow, log_in, serving
from tests.dashboard.stories.tales import OPERATOR
from tests.dashboard.stories.telling import StoryTeller
from tests.tuning.live import Live, look_up, measuring

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.timeout(300),
]

ROWS = [
    parse_operator({"op": "Softmax", "inputs": [{"shape": [rows, 200], "dtype": "float32"}]})
    for rows in (16, 32, 48)
]
KERNELS = ("softmax-rows", "softmax-plain", "softmax-exact")
"""As many as it takes: a route fails, by the rule, after eight trials of three operators."""


@pytest.fixture
def breakable(chromium: Any, tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    app = "tests.dashboard.stories.breakable_worker"
    with django_db_blocker.unblock(), measuring(tmp_path, app=app) as service:
        yield service


def test_is_alerted_to_a_broken_route_and_mends_it(
    breakable: Live, chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.wsgi import get_wsgi_application

    from dashboard.notifications.alerts import causes, watching
    from dashboard.notifications.alerts.watching import watch
    from tests.dashboard.kernels import person
    from tuning.models import Exploration, State, Trial

    # The minute for which a cause must be gone.
    monkeypatch.setattr(watching, "rules", lambda: [replace(one, quiet_s=0.2) for one in causes.rules()])
    approved_kernels()
    compiler = own_compiler(tmp_path / "cc")
    breakable.start_worker(CC=str(compiler))
    breakable.wait_warm(timeout_s=120)
    away = compiler.rename(tmp_path / "removed")
    look_up(*ROWS)
    done = Exploration.objects.filter(state=State.DONE)
    breakable.wait_for(lambda: done.count() == len(ROWS), "their contests", 120)
    tried = Trial.objects.filter(route="cpp")
    assert {*tried.values_list("status", flat=True)} == {"build_failed"}
    watch()  # as the courier does every five seconds

    def mended() -> None:
        away.rename(compiler)

    def worked() -> None:
        works = tried.filter(status__in=("ok", "slower", "noisy"))
        breakable.wait_for(works.exists, "a kernel that compiles", 60)
        breakable.wait_for(lambda: watch() or resolved(), "the alert's end", 30)

    person("olaf")
    with serving(get_wsgi_application()) as url:
        watched = open_window(chromium, url)
        log_in(watched.page, "olaf")
        walk(StoryTeller(OPERATOR, watched.page), mended, worked)
        assert not watched.wrong
        watched.page.context.close()


def walk(story: StoryTeller, mended: Callable[[], None], worked: Callable[[], None]) -> None:
    page = story.page
    assert "cpp failed on every one of its last 9 trials" in story.said()
    story.show("overview")
    follow(page, page.get_by_role("link", name=re.compile("alerts? fire")))
    follow(page, page.get_by_role("link", name=re.compile("cpp failed on all")))
    page.get_by_label("Why").fill("This morning's upgrade took the compiler away.")
    follow(page, page.get_by_role("button", name="I see to it"))
    assert "olaf sees to it" in story.said() and "9 trials of 3 operators" in story.said()
    story.show("alert")

    follow(page, page.get_by_role("link", name="Where to look"))
    follow(page, page.get_by_role("link", name=re.compile("the compiler does not start")))
    assert "No such file or directory" in story.said() and "9 trials of 3 operators by cpp" in story.said()
    story.show("failure")
    mended()
    follow(page, page.get_by_role("button", name="Try again"))
    assert "3 explorations will try this again" in story.said()
    story.show("again")
    worked()

    follow(page, page.get_by_role("navigation", name="Main").get_by_role("link", name=re.compile("Alerts")))
    follow(page, page.get_by_role("link", name=re.compile("cpp failed on all")))
    assert "The cause is gone." in story.said() and "resolved" in page.locator(".state-line").inner_text()
    story.show("resolved")
    story.over()


def resolved() -> bool:
    from dashboard.notifications.models import Alert

    return Alert.objects.filter(rule="failing", state="resolved").exists()


def own_compiler(path: Path) -> Path:
    """A command that compiles C as the machine's compiler does, and that can be removed."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(find_compiler())} "$@"\n')
    path.chmod(0o755)
    return path


def approved_kernels() -> None:
    """Kernels that were approved when their compiler was there."""
    from catalog.registry import register_operator, register_setting, register_target
    from tests.dashboard.kernels import SOURCE, approve, evaluated, person, submitted

    target = detect_target()
    here = SimpleNamespace(target=register_target(target), setting=register_setting(default_setting(target)))
    rows = [register_operator(one) for one in ROWS[:2]]
    ada, grace = person("ada"), person("grace", decides=True)
    for name in KERNELS:
        source = f"/* {name} */\n{SOURCE}"
        version = evaluated(submitted(ada, name=name, source=source, flags=("-O3",)), rows, here)  # type: ignore[arg-type]
        approve(version, user=grace, reason="Read and understood.")
