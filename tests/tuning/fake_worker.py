"""A Celery worker over fakes: ``celery -A tests.tuning.fake_worker worker``."""

from tuning.celery import app

app.conf.include = [*app.conf.include, "tests.tuning.fake_tools"]
