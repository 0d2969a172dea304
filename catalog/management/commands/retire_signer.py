"""``manage.py retire_signer <SHA-256>``: what this key has signed counts no longer."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from catalog.best.signers import retire_signer
from catalog.commands import CallerCommand


class Command(CallerCommand):
    help = "Let a signing key's signatures count no longer (sign_artifacts signs anew with another key)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("signer", help="The SHA-256 of its public key, or the beginning of it.")

    def handle(self, *args: Any, **options: Any) -> None:
        signer = retire_signer(options["signer"])
        self.stdout.write(f"Signer {signer} is retired since {signer.retired_at:%Y-%m-%d %H:%M:%S} UTC.")
