"""Celery's tasks: doorbells."""

from __future__ import annotations

from tuning.celery import WAKE, app


@app.task(name=WAKE, ignore_result=True)
def wake() -> None:
    """Wake the worker: it claims the best work that it can do until none is left."""
    from tuning.worker.process import this_worker

    this_worker().run_until_idle()
