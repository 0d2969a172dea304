"""Bring in what `make bench-gpu` measured elsewhere."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from tuning.bare.lines import read_lines
from tuning.importing import import_measurements


class Command(QuickCommand):
    help = "Publish what a bare machine measured (measured-*.jsonl), with its environment, signed here."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        if absent := [str(path) for path in options["files"] if not path.is_file()]:
            raise CommandError(f"There is no file {absent[0]}.")
        done = import_measurements(chain.from_iterable(map(read_lines, options["files"])))
        self.stdout.write(
            f"{done.lines} lines: {done.published} published, {done.unpublished} without an artifact or not "
            f"right, {done.uncovered} operators uncovered."
        )
        for reason in done.refused:
            self.stderr.write(f"left out: {reason}")
