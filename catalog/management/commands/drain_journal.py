"""``manage.py drain_journal [--every SECONDS]``"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser
from django.db import close_old_connections

from catalog.commands import QuickCommand
from catalog.usage.draining import drain_journal


class Command(QuickCommand):
    help = (
        "Turn this machine's journal of served lookups into usage rows. Workers do it by themselves; "
        "a machine that only answers lookups runs this with --every."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=1_000_000, help="lines in one go")
        parser.add_argument("--every", type=float, help="go on for ever, this many seconds apart")

    def handle(self, *args: Any, **options: Any) -> None:
        while True:
            drained = drain_journal(options["limit"])
            if options["every"] is None:
                self.stdout.write(f"{drained} lines drained.")
                return
            close_old_connections()
            time.sleep(options["every"])
