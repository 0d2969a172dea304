"""``manage.py sign_artifacts``: after a key was retired, on a machine that has the new one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from catalog.best.artifacts import sign_again
from catalog.commands import QuickCommand
from catalog.errors import StoreError
from tuning.explore.signing import key_path, signing_key


class Command(QuickCommand):
    help = "Sign, with this machine's key, every artifact that is unsigned or whose signer was retired."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            signed = sign_again(signing_key())
        except StoreError as error:
            raise CommandError(f"{error} This one lies at {key_path()}: move it away first.") from error
        self.stdout.write(f"{signed} artifacts were signed with the key at {key_path()}.")
