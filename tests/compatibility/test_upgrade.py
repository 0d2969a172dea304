"""From the version before the newest migration to this one, while jobs ask: no lookup is lost.

Two web processes of the old version answer. Migrations of the new one run under both, one is replaced, then
the other. So whatever a migration does, the version before it must go on with (docs/changing.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.service.upgrading import Upgraded, tree_before, upgrade
from tests.services import NOT_TESTED, MissingProgram, PrivatePostgres

pytestmark = pytest.mark.slow


@pytest.fixture
def before(tmp_path: Path) -> Path:
    try:
        return tree_before(tmp_path)
    except MissingProgram as missing:
        pytest.skip(f"{NOT_TESTED}: {missing}")


def check(done: Upgraded) -> None:
    assert not done.lost, done.lost[:3]
    assert done.counted == done.answered, "each was counted, once"


def test_no_lookup_is_lost_while_the_service_is_upgraded(before: Path, tmp_path: Path) -> None:
    check(upgrade(before, tmp_path / "home"))


@pytest.mark.nightly
@pytest.mark.services
def test_nor_on_postgres(before: Path, tmp_path: Path, private_postgres: PrivatePostgres) -> None:
    check(upgrade(before, tmp_path / "home", DATABASE_URL=private_postgres.new_database()))
