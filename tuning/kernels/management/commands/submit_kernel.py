"""``manage.py submit_kernel softmax.json --user ada``: metadata that names its source file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from catalog import models
from catalog.commands import QuickCommand
from catalog.registry import default_organisation
from opatlas.errors import CallerError
from tuning.kernels.services import Submission, submit

_FIELDS = (
    *("name", "pattern", "language", "flags", "launch"),
    *("author", "licence", "description", "example"),
)


class Command(QuickCommand):
    help = (
        "Submit a hand-written kernel: a JSON file with its metadata, whose `file` is the source beside it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("metadata", type=Path, help="JSON: file, " + ", ".join(_FIELDS))
        parser.add_argument("--user", required=True, help="who submits it")
        parser.add_argument(
            "--organisation", default="", help="whose kernel it is; the default one's if empty"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = find_user(options["user"])
        owner = default_organisation()
        if options["organisation"]:
            found = models.Organisation.objects.filter(name=options["organisation"]).first()
            if found is None:
                raise CommandError(f"There is no organisation {options['organisation']!r}.")
            owner = found
        try:
            version = submit(read_submission(options["metadata"]), user=user, organisation=owner)
        except CallerError as error:
            where = f" ({error.where})" if error.where else ""
            raise CommandError(f"{error}{where}") from error
        self.stdout.write(f"{version.label} ({version.pk}): {version.state}. {version.state_reason}".strip())


def find_user(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"There is no user {name!r}: manage.py createsuperuser makes the first.")
    return user


def read_submission(path: Path) -> Submission:
    """The metadata at ``path`` with the source that it names."""
    try:
        document = json.loads(path.read_text())
        unknown = sorted(set(document) - {*_FIELDS, "file"})
        if unknown:
            raise CommandError(f"{path} has {', '.join(unknown)}; it may have file, {', '.join(_FIELDS)}.")
        source = (path.parent / document.pop("file")).read_text()
        return Submission(source=source, **document)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} and its source cannot be read: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{path} must be a JSON object with file, name, pattern, author and licence: {error!r}"
        ) from error
