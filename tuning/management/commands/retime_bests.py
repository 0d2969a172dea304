"""``manage.py retime_bests``: do published times hold?"""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from catalog.commands import QuickCommand
from opatlas.identity import detect_target
from tuning.retiming.holding import Retimed, summarize_retimed
from tuning.retiming.retiming import published_bests, retimer


class Command(QuickCommand):
    help = (
        "Time a sample of this machine's published bests again, in fresh processes, and say how many ratios "
        "lie inside the interval that was published, and how wide the intervals are. Nothing is published."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--sample", type=int, default=40, help="how many bests (40)")
        parser.add_argument(
            "--at-least-minutes", type=float, default=30.0, help="of age; younger ones are left out (30)"
        )
        parser.add_argument("--seed", default="", help="another one draws other bests")
        parser.add_argument("--json", action="store_true", help="all of it as JSON, at the end")

    def handle(self, *args: Any, sample: int, at_least_minutes: float, seed: str, **options: Any) -> None:
        target = detect_target()
        before = timezone.now() - timedelta(minutes=at_least_minutes)
        bests = published_bests(target, before, sample, seed)
        if not bests:
            self.stdout.write(f"No best of this machine is {at_least_minutes:g} minutes old.")
            return
        rows: list[Retimed] = []
        with (
            tempfile.TemporaryDirectory(prefix="opatlas-retiming-") as folder,
            retimer(Path(folder), target) as course,
        ):
            for best in bests:
                rows.append(course.retime(best))
                if not options["json"]:
                    self.stdout.write(f"  {rows[-1]}")
        found = summarize_retimed(rows)
        if options["json"]:
            self.stdout.write(json.dumps(found | {"rows": [row.to_json() for row in rows]}, indent=1))
        else:
            self.stdout.write(said(found))


def said(found: dict[str, Any]) -> str:
    if not found["retimed"]:
        return f"None of {found['bests']} bests could be timed again."
    return (
        f"{found['reproduced']:.1%} of {found['retimed']} published intervals hold "
        f"({found['overlapping']:.1%} overlap the one of now); their half width is "
        f"{found['median_half_width']:.2%} in the median. They were {found['youngest_s'] / 60:.0f} to "
        f"{found['oldest_s'] / 60:.0f} minutes old. "
        f"{found['bests'] - found['retimed']} could not be timed again."
    )
