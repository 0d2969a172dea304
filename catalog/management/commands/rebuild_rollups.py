"""``manage.py rebuild_rollups``: make what pages read afresh from the rows, after a repair or a bulk load."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError

from catalog.commands import QuickCommand
from catalog.rollups.rollups import rebuild_rollups


class Command(QuickCommand):
    help = "Make every rollup afresh from the rows; pages go on with the old ones meanwhile."

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            rebuild_rollups()
        except TimeoutError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Rollups made in {time.monotonic() - began:.1f} s.")
