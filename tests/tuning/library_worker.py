"""A Celery worker without compilers: ``celery -A tests.tuning.library_worker worker``."""

from tuning.celery import app

app.conf.include = [*app.conf.include, "tests.tuning.library_tools"]
