"""``manage.py rekey``"""

from __future__ import annotations

from typing import Any

from catalog.commands import QuickCommand
from catalog.lookup.rekeying import rekey_operators


class Command(QuickCommand):
    help = (
        "Give every stored operator the key that today's canonical form gives it. Stop web and workers first."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        done = rekey_operators()
        for key, reason in done.refused:
            self.stderr.write(f"{key} is left as it is: {reason}")
        self.stdout.write(
            f"{done.kept} kept, {done.changed} changed, {done.merged} merged, {len(done.refused)} refused."
        )
