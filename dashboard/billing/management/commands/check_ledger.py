"""``manage.py check_ledger``: every balance against every entry of its ledger."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from catalog.commands import QuickCommand
from dashboard.billing.selectors import audit_ledger


class Command(QuickCommand):
    help = (
        "Hold every account against all entries of its ledger, and charges against usage; 1 if they differ."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        wrong = 0
        for one in audit_ledger():
            wrong += not one.is_right
            verdict = "ok   " if one.is_right else "WRONG"
            self.stdout.write(
                f"{verdict} {one.account}: balance {one.account.balance_micros}, "
                f"ledger {one.ledger_micros}, days {one.day_micros}; "
                f"{one.charges} charges for {one.charged_usages} hits"
            )
        if wrong:
            raise CommandError(f"{wrong} account(s) differ from their ledger.")
