"""``manage.py archive_audit --before YYYY-MM-DD --to FILE``, and ``--check FILE``"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import CallerCommand
from catalog.people.archiving import archive, check


def day(text: str) -> date:
    return date.fromisoformat(text)


class Command(CallerCommand):
    help = (
        "Export the audit log's entries of before a day (UTC) into a new file, compare it, and remove them "
        "from the database. Killed, it is called again with the same day and file. --check compares a file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--before", type=day, help="YYYY-MM-DD, at least a month ago")
        parser.add_argument("--to", type=Path, help="a new file")
        parser.add_argument("--check", type=Path, help="a file of this command's")

    def handle(self, *args: Any, **options: Any) -> None:
        before, path = options["before"], options["to"]
        if options["check"] is not None:
            one = check(options["check"])
            self.stdout.write(
                f"{options['check']} is whole: {one.count} entries, {one.first_id} to {one.last_id}, "
                f"of before {one.before}."
            )
            return
        if before is None or path is None:
            raise CommandError("Name a day and a new file (--before, --to), or a file to compare (--check).")
        done = archive(before, path)
        if done is None:
            self.stdout.write(f"No entry is older than {before}: no file was written.")
            return
        summary, removed = done
        self.stdout.write(
            f"{path} has {summary.count} entries, {summary.first_id} to {summary.last_id}; {removed} were "
            "removed from the database."
        )
