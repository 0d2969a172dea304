"""``manage.py repeat_build SHA256``: build an artifact again and compare it bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from catalog.models import Implementation
from opatlas import identity
from tuning.explore.repeating import Recorded, repeat
from tuning.measure.laboratory import SUBMITTED, Laboratory
from tuning.routes.base import Candidate
from tuning.routes.registry import ROUTES


class Command(QuickCommand):
    help = "Build a published artifact again from its provenance: same, differs, or cannot be repeated here."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("artifact", help="its SHA-256, or the first digits of it")

    def handle(self, *args: Any, artifact: str, **options: Any) -> None:
        implementation = _find(artifact)
        with tempfile.TemporaryDirectory(prefix="opatlas-repeat-") as folder:
            target = identity.Target.from_json(implementation.target.description)
            with Laboratory(Path(folder), target) as laboratory:
                if implementation.route in SUBMITTED and laboratory.tier.name != "T2":
                    raise CommandError(
                        "Submitted code is built in a sandbox of tier T2 only: install bubblewrap."
                    )
                found = repeat(laboratory, ROUTES, recorded(implementation), Path(folder) / "again")
        self.stdout.write(str(found))
        if found.verdict != "same":
            raise SystemExit(1)


def recorded(implementation: Implementation) -> Recorded:
    """What the catalogue knows of how an implementation was built."""
    manifest = implementation.artifact.manifest
    return Recorded(
        operator=identity.Operator.from_json(implementation.operator.graph),
        setting=identity.Setting.from_json(implementation.setting.description),
        candidate=Candidate(implementation.route, implementation.candidate, implementation.label),
        files=manifest["files"],
        provenance=manifest.get("provenance"),
    )


def _find(digits: str) -> Implementation:
    rows = Implementation.objects.filter(artifact__sha256__startswith=digits.lower())
    related = ("artifact", "operator", "setting", "target")
    found = list(rows.select_related(*related).order_by("-pk")[:50])
    if not digits or not found:
        raise CommandError(f"There is no artifact {digits!r} in the catalogue.")
    if len({row.artifact_id for row in found}) > 1:
        raise CommandError(f"Several artifacts begin with {digits}: give more digits.")
    return found[0]
