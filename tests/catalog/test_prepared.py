"""A plan is made once for a connection, and never outlives what it was made for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from catalog.prepared import fetch_planned
from tests.hostile.conftest import deploy  # noqa: F401

PLANS = """
import json, django; django.setup()
import psycopg
from django.db import connection, transaction
from catalog.best.served import find_bests
from catalog.models import SHARED
from catalog.prepared import fetch_planned
from catalog.registry import register_operator, register_setting, register_target
from catalog.best.publishing import publish
from tests.catalog import making
place = dict(operator=register_operator(making.relu(64)), target=register_target(making.TARGET),
             setting=register_setting(making.SETTING))
publish(making.new_result(place, "eager", 1.0))
there = place["target"], place["setting"], [SHARED]
key = making.relu(64).key
said = {}

def elsewhere(sql):
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute(sql)

def plans(table):
    with connection.cursor() as cursor:
        cursor.execute("SELECT generic_plans + custom_plans FROM pg_prepared_statements "
                       "WHERE statement LIKE '%%' || %s || '%%'", [table])
        return [uses for uses, in cursor.fetchall()]

hits = [find_bests([key], *there)[key] for _ in range(20)]
said["same"] = len(set(hits)) == 1
said["of one key"] = plans("catalog_best")
find_bests([key, making.relu(65).key], *there)
said["with a batch"] = plans("catalog_best")
elsewhere("CREATE TABLE tried (number int, word varchar(5)); INSERT INTO tried VALUES (1, 'one'), (2, 'two')")
read = lambda number: fetch_planned("SELECT number, word FROM tried WHERE number = %s", [number])
said["before"] = [read(1), read(2)]
elsewhere("ALTER TABLE tried ALTER word TYPE varchar(50)")
elsewhere("UPDATE tried SET word = 'a longer one' WHERE number = 1")
said["after"] = [read(1), read(2)]
with transaction.atomic():
    said["within"] = [read(1), read(2)]
print(json.dumps(said))
"""


@pytest.mark.services
def test_one_plan_serves_until_the_table_is_another(private_postgres: Any, deploy: Any) -> None:  # noqa: F811
    url = private_postgres.new_database(migrated=True)
    said = json.loads(deploy(DATABASE_URL=url).run("-c", PLANS).splitlines()[-1])
    assert said["same"]
    assert said["of one key"] == [20] and said["with a batch"] == [20]
    assert said["before"] == [[[1, "one"]], [[2, "two"]]]
    # PostgreSQL refuses what it had planned for shorter words: nobody is told of it.
    assert said["after"] == said["within"] == [[[1, "a longer one"]], [[2, "two"]]]


@pytest.mark.django_db
def test_any_database_answers_and_its_statements_are_counted(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert fetch_planned("SELECT %s + 1", [41]) == [(42,)]
    assert connection.in_atomic_block, "as the lookups that are charged"
