"""``manage.py courier``: rollups, notifications and deliveries, until it is asked to end."""

from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import QuickCommand
from catalog.versions import refuse_newer_database
from dashboard.run.courier import Courier


class Command(QuickCommand):
    help = "Keep rollups fresh and deliver notifications and webhooks; --once does what is due and ends."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true")

    def handle(self, *args: Any, once: bool, **options: Any) -> None:
        refuse_newer_database()
        courier = Courier()
        if once:
            courier.round()
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: courier.stop.set())
        courier.run()
