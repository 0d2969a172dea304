"""``manage.py create_api_key NAME --scopes lookup operate``"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from catalog.commands import CallerCommand, owner_named
from catalog.people.keys import SCOPES, create_api_key, expiry_of


class Command(CallerCommand):
    help = "Make an API key. Its text is shown once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="what the key is for")
        parser.add_argument("--scopes", nargs="+", default=["lookup"], help=f"of: {', '.join(SCOPES)}")
        parser.add_argument("--organisation", default="", help="its owner; made if it does not exist")
        parser.add_argument("--user", default="", help="whose key it is: submitting and approving need one")
        parser.add_argument("--max-queued-misses", type=int, default=10_000)
        parser.add_argument("--expires", default="", help="its end, UTC: 2027-01-31; never if left out")
        parser.add_argument(
            "--addresses", nargs="+", default=[], help="networks that it is used from: 192.0.2.0/24"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner = owner_named(options["organisation"])
        user = User.objects.filter(username=options["user"]).first() if options["user"] else None
        if options["user"] and user is None:
            raise CommandError(
                f"There is no user {options['user']!r}: manage.py createsuperuser makes the first."
            )
        key, text = create_api_key(
            owner,
            options["name"],
            options["scopes"],
            user=user,
            max_queued_misses=max(0, options["max_queued_misses"]),
            expires_at=expiry_of(options["expires"]),
            addresses=options["addresses"],
        )
        self.stderr.write(f"The key {key.prefix} of {owner} ({', '.join(key.scopes)}), shown this once:")
        self.stdout.write(text)
