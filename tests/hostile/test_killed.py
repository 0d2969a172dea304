"""SIGKILL anywhere loses nothing that was answered, and counts nothing twice."""

import pytest

from tests.hostile.conftest import by_day_on

pytestmark = pytest.mark.slow

ANSWERS = 500

SETUP = """
import django; django.setup()
from catalog.best.publishing import publish
from catalog.registry import register_operator, register_setting, register_target
from tests.catalog import making
place = {"target": register_target(making.TARGET), "setting": register_setting(making.SETTING)}
for length in (64, 65):
    operator = register_operator(making.relu(length))
    publish(making.new_result({"operator": operator, **place}, "eager", 1.0))
"""


def counts(deployment):
    ((usage,),) = deployment.query("SELECT COUNT(*) FROM catalog_usage")
    ((tally,),) = deployment.query("SELECT COALESCE(SUM(hits), 0) FROM catalog_lookuptally")
    ((job,),) = deployment.query("SELECT COALESCE(SUM(hits), 0) FROM catalog_joboperator")
    return usage, tally, job


@by_day_on("sqlite")
def test_a_killed_writer_loses_no_answered_hit_and_a_killed_drainer_counts_none_twice(deployment):
    deployment.run("-c", SETUP)
    answered = 0
    for _ in range(2):
        writer = deployment.start("-m", "tests.hostile.journalling")
        assert writer.stdout.readline() == "ready\n"
        for _ in range(ANSWERS):
            assert writer.stdout.readline() == "answered\n"
        writer.kill()
        answered += ANSWERS + len(writer.stdout.read().splitlines())
        writer.communicate()
    deployment.run("-m", "tests.hostile.killing", "drain_journal", "--limit", "300")
    deployment.manage("drain_journal")
    usage, tally, job = counts(deployment)
    # At most one line of each writer was on disk without its answer having left. Each is of two hits.
    assert 2 * answered <= usage <= 2 * (answered + 2)
    assert usage == tally == job
    assert deployment.query("SELECT jobs, weight FROM catalog_succession") == [(1, 1.0)]
