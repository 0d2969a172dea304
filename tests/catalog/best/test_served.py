"""What reading a best costs in the database."""

from __future__ import annotations

import sqlite3

import pytest
from django.db import connection

from catalog.best.publishing import publish
from catalog.best.served import find_bests
from catalog.models import SHARED
from catalog.registry import register_operator, register_setting, register_target
from tests.catalog import making

pytestmark = pytest.mark.django_db


def test_statistics_do_not_make_each_lookup_plan_anew() -> None:
    target, setting = register_target(making.TARGET), register_setting(making.SETTING)
    keys = []
    for number in range(64, 94):
        operator = register_operator(making.relu(number))
        place = {"operator": operator, "target": target, "setting": setting}
        publish(making.new_result(place, "eager", 1.0))
        keys.append(operator.key)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    asked: list[tuple[str, list[object]]] = []

    def note(execute, sql, parameters, many, context):  # type: ignore[no-untyped-def]
        asked.append((sql, parameters))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        found = {key: find_bests([key], target, setting, [SHARED])[key].key for key in keys}
    assert found == {key: key for key in keys}
    if connection.vendor == "sqlite":  # of PostgreSQL tests/catalog/test_prepared.py tells
        assert times_planned(asked) == 1


def times_planned(asked: list[tuple[str, list[object]]]) -> int:
    """By the authoriser, whom SQLite asks each time that it plans a statement."""
    selects = [0]

    def allow(action: int, *_: object) -> int:
        selects[0] += action == sqlite3.SQLITE_SELECT
        return sqlite3.SQLITE_OK

    database = connection.connection
    database.set_authorizer(allow)
    try:
        for sql, parameters in asked:
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                cursor.fetchall()
    finally:
        database.set_authorizer(None)
    return selects[0]
