"""A Celery worker whose compiler can be taken away: ``celery -A`` and this module's name."""

from tuning.celery import app

app.conf.include = [*app.conf.include, "tests.dashboard.stories.breakable_tools"]
