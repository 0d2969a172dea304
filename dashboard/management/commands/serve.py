"""``manage.py serve``: the whole service on this machine, until Ctrl-C."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.conf import conf as catalog_conf
from catalog.models import ApiKey, Membership, Role
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from dashboard.conf import conf
from dashboard.run.migrating import migrate
from dashboard.run.stack import Stack, StackError, port_is_free


class Command(BaseCommand):
    help = "Migrate, make a first administrator and API key, and run the web server and workers."
    # They import every view, which the web server is about to do: tests run them, and `manage.py check`.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=conf().port)
        parser.add_argument("--workers", type=int, default=1)

    def handle(self, *args: Any, port: int, workers: int, **options: Any) -> None:
        started = time.monotonic()
        # Service managers send SIGTERM, a closed terminal SIGHUP: both are treated like Ctrl-C.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks to be left alone
                signal.signal(number, signal.default_int_handler)
        if not port_is_free(port):
            raise CommandError(f"Port {port} is in use; choose another, for example PORT={port + 1}.")
        self.stdout.write(f"State in {catalog_conf().home}")
        try:
            with Stack(port=port, workers=workers, prepare=self.prepare) as stack:
                took = time.monotonic() - started
                self.stdout.write(self.style.SUCCESS(f"Opatlas is up after {took:.1f} s: {stack.url}"))
                self.stdout.write(
                    "The worker warms its compilers in the background. Ctrl-C stops everything."
                )
                stack.watch(lambda name: self.stderr.write(f"{name} ended; starting it again."))
        except StackError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")
            sys.exit(0)
        raise CommandError("The web server ended.")

    def prepare(self) -> None:
        """Migrate; make the first administrator and key, and show their secrets this one time."""
        migrate()
        users = get_user_model()
        if not users.objects.exists():
            password = secrets.token_urlsafe(12)
            admin = users.objects.create_superuser("admin", password=password)
            Membership.objects.create(user=admin, organisation=default_organisation(), role=Role.ADMIN)
            self.stdout.write(f"First administrator: admin / {password}   (shown once)")
        if not ApiKey.objects.exists():
            _, secret = create_api_key(
                default_organisation(), "first key", ["lookup", "models", "operate", "admin"]
            )
            self.stdout.write(f"First API key: {secret}   (shown once)")
