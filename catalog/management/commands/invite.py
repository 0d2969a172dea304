"""``manage.py invite --organisation ORG --role admin``: a link that lets somebody join."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from catalog import models
from catalog.commands import CallerCommand, owner_named
from catalog.people import audit
from catalog.people import members as people


class Command(CallerCommand):
    help = "Make an invitation. Its link is shown once, opens once, and holds for a week."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organisation", default="", help="made if it does not exist; else the host")
        parser.add_argument("--role", default=models.Role.VIEWER, choices=models.Role.values)
        parser.add_argument("--email", default="", help="noted, so that people know whose it is")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the service is")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = owner_named(options["organisation"])
        row, token = people.invite(owner, options["role"], email=options["email"])
        audit.record("member.invite", subject=row.email or "by link", organisation=owner,
                     detail={"role": row.role}, actor="a command")  # fmt: skip
        self.stderr.write(f"Whoever opens this within a week joins {owner} as {row.role}:")
        self.stdout.write(f"{options['url'].rstrip('/')}/invited/{token}/")
