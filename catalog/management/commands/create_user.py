"""``manage.py create_user NAME --organisation ORG --role operator``"""

from __future__ import annotations

import getpass
import secrets
from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from catalog import models
from catalog.commands import CallerCommand, owner_named
from catalog.conf import conf
from catalog.people import audit
from catalog.people import members as people


class Command(CallerCommand):
    help = "Make an account and give it a role. The password is asked for, or made and shown once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--email", default="")
        parser.add_argument("--organisation", default="", help="made if it does not exist; else the host")
        parser.add_argument("--role", default=models.Role.VIEWER, choices=models.Role.values)
        parser.add_argument("--ask", action="store_true", help="ask for the password instead of making one")

    def handle(self, *args: Any, username: str, **options: Any) -> None:
        given = getpass.getpass() if options["ask"] else conf().password
        password = given or secrets.token_urlsafe(16)
        with transaction.atomic():
            owner = owner_named(options["organisation"])
            user = people.make_user(username, password, email=options["email"])
            models.Membership.objects.create(user=user, organisation=owner, role=options["role"])
            audit.record(
                "account.make",
                subject=username,
                organisation=owner,
                detail={"role": options["role"]},
                actor="a command",
            )
        self.stderr.write(f"{username} is {options['role']} of {owner}.")
        if not given:
            self.stderr.write("The password, shown this once:")
            self.stdout.write(password)
