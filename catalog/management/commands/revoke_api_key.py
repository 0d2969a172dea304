"""``manage.py revoke_api_key PREFIX``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import CallerCommand
from catalog.people.keys import revoke_api_key


class Command(CallerCommand):
    help = "Close an API key at once. Its prefix is the part between opk_ and the next underscore."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix")

    def handle(self, *args: Any, **options: Any) -> None:
        key = revoke_api_key(options["prefix"])
        self.stdout.write(f"{key} is revoked since {key.revoked_at:%Y-%m-%d %H:%M:%S} UTC.")
