"""The tools of ``fake_worker``: imported by Celery once Django is set up.

FAKE_STEP_S is how long a build's timing takes; an ``Exp`` meets a route that kills the worker process.
"""

from __future__ import annotations

from tests.tuning.fakes import EAGER, TARGET, FakeLaboratory, FakeRoute
from tuning.worker import process as worker

ROUTES = (
    EAGER,
    FakeRoute("quick", offers=[{"ratio": 1.5}, {"ratio": 0.8}]),
    FakeRoute("deadly", "compiler", offers=[{"behave": "kill_worker"}], only=frozenset({"Exp"})),
)


def make_tools() -> worker.Tools:
    return worker.Tools(
        routes=ROUTES,  # type: ignore[arg-type]
        default_candidate=lambda o, t, s: (EAGER, next(EAGER.candidates(o, t, s, None))),  # type: ignore[arg-type]
        laboratory=FakeLaboratory,  # type: ignore[arg-type]
        target=lambda: TARGET,
    )


worker.make_tools = make_tools
