"""A Celery worker over fakes: ``celery -A tests.tuning.fake_worker worker``, with the tools of ``fake_tools``."""

from tuning.celery import app

app.conf.include = [*app.conf.include, "tests.tuning.fake_tools"]
