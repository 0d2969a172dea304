"""A Celery worker of a simulated GPU: ``celery -A tests.tuning.device_worker worker``."""

from tuning.celery import app

app.conf.include = [*app.conf.include, "tests.tuning.device_tools"]
