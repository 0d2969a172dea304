"""Charged lookups that are killed: ``python -m tests.hostile.paying`` on an empty database.

The first right after its commit, before its answer can leave; others after their first write, their second,
fourth and so on, until one comes to its end. Each is then sent again under its Idempotency-Key. Prints what
became of each, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.hostile.killing import AFTER_COMMIT, after_writes, forked


def main() -> None:
    import django

    django.setup()
    from django.db import connection

    from catalog.best.publishing import publish
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
    from catalog.lookup.repeating import NamedRequest
    from catalog.registry import default_organisation, register_operator, register_setting, register_target
    from dashboard.billing import pricelist
    from dashboard.billing.models import LedgerEntry, PriceRule
    from tests.catalog import making

    target, setting = register_target(making.TARGET), register_setting(making.SETTING)
    place = {"operator": register_operator(making.relu(64)), "target": target, "setting": setting}
    publish(making.new_result(place, "tvm", 2.0))
    pricelist.add(PriceRule(name="all", currency="EUR", per_hit_micros=1_000), {"actor": "tests"})
    organisation = default_organisation()
    told = list[dict[str, Any]]()

    def ask(name: str) -> int:
        request = LookupRequest(
            target,
            setting,
            [AskedOperator(making.relu(64).key)],
            organisation=organisation,
            job="killed",
            named=NamedRequest(name, [name]),
        )
        (result,) = lookup(request).results
        return result.terms.price_micros if result.terms else 0

    def attempt(name: str, faults: str) -> bool:
        before = LedgerEntry.objects.count()
        connection.close()
        was_killed = os.WIFSIGNALED(forked(lambda: ask(name), faults))
        committed = LedgerEntry.objects.count() > before
        told.append({"killed": was_killed, "committed": committed, "charged_micros": ask(name)})
        return was_killed

    attempt("committed", AFTER_COMMIT)
    writes = 1
    while attempt(f"after {writes}", after_writes(writes)):
        writes *= 2
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
