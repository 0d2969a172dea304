"""Connections to PostgreSQL end by themselves where their process was stopped or their network is gone."""

from __future__ import annotations

import pytest

from tests.hostile.conftest import deploy  # noqa: F401

SHOW = """
import django; django.setup()
from django.db import connection
with connection.cursor() as cursor:
    for name in ("idle_in_transaction_session_timeout", "tcp_user_timeout"):
        cursor.execute(f"SHOW {name}")
        print(cursor.fetchone()[0])
print(connection.get_connection_params()["connect_timeout"])
"""


@pytest.mark.services
def test_nobody_holds_rows_for_ever_and_what_the_url_says_stands(private_postgres, deploy) -> None:  # noqa: F811
    url = private_postgres.new_database()
    idle, tcp, connect = deploy(DATABASE_URL=url).run("-c", SHOW).split()
    assert (idle, tcp, connect) == ("1min", "30000", "10")
    own = f"{url}?connect_timeout=3&options=-c%20idle_in_transaction_session_timeout%3D5s"
    idle, _, connect = deploy(DATABASE_URL=own).run("-c", SHOW).split()
    assert (idle, connect) == ("5s", "3")
