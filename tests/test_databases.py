"""What tests with transactions leave is deleted, and nothing else is changed."""

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db import DatabaseError, connection, transaction

from catalog.people import audit
from catalog.registry import default_organisation
from dashboard.billing import accounts, pricelist
from dashboard.billing.models import LedgerEntry, PriceRule
from tests.databases import MIGRATED, empty


def write() -> None:
    accounts.give_credit(default_organisation(), 80_000, "credit", currency="EUR", by={"actor": "tests"})
    pricelist.add(PriceRule(name="compiled", currency="EUR", per_hit_micros=1_000), {"actor": "tests"})
    audit.record("done", user=User.objects.create_user("ada"))


def refused(rows: object) -> bool:
    """Whether the database itself lets nobody delete them."""
    try:
        with transaction.atomic():
            rows._raw_delete("default")  # type: ignore[attr-defined]
    except DatabaseError:
        return True
    return False


@pytest.mark.django_db(transaction=True)
def test_every_row_goes_guarded_ones_too_and_their_guards_stay() -> None:
    permissions = set(Permission.objects.values_list("pk", flat=True))
    write()
    empty(connection)
    left = {model._meta.db_table for model in apps.get_models() if model._base_manager.exists()}
    assert left == MIGRATED
    assert set(Permission.objects.values_list("pk", flat=True)) == permissions
    write()
    assert refused(LedgerEntry.objects.all()) and refused(PriceRule.objects.all())
