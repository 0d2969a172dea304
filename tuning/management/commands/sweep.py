"""Put back what silent workers held. The leading worker does so all the time; this is for when none runs."""

from __future__ import annotations

from typing import Any

from catalog.commands import QuickCommand
from tuning.queue.claims import sweep


class Command(QuickCommand):
    help = "Queue explorations again whose worker fell silent (or bury them after their last try)."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{sweep()} explorations were put back.")
