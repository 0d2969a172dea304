import json

import pytest

from tests.hostile.asker import LENGTHS
from tests.hostile.conftest import by_day_on

pytestmark = pytest.mark.slow

PROCESSES, THREADS = 4, 5


@by_day_on("postgres")
def test_twenty_at_once_make_one_miss_each_with_a_count_of_twenty(deployment):
    key = deployment.manage("create_api_key", "together").strip()
    asker = deployment.start("-m", "tests.hostile.asker", key, str(PROCESSES), str(THREADS))
    said, complaints = asker.communicate(timeout=120)
    assert asker.returncode == 0, complaints[-3000:]
    assert json.loads(said) == [["waiting"] * len(LENGTHS)] * (PROCESSES * THREADS), complaints[-5000:]
    rows = deployment.query("SELECT count, calls FROM catalog_miss")
    assert rows == [(PROCESSES * THREADS, float(PROCESSES * THREADS))] * len(LENGTHS)
    assert deployment.query("SELECT COUNT(*) FROM catalog_operator") == [(len(LENGTHS),)]
    assert deployment.query("SELECT COUNT(*) FROM catalog_target") == [(1,)]
    deployment.manage("drain_journal")
    (tally,) = set(deployment.query("SELECT misses FROM catalog_lookuptally"))
    assert tally == (PROCESSES * THREADS,)
