"""``python -m bench.seed service --implementations N --usage N --explorations N``: for benches only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Model

from bench.seed import catalogue as synthetic_catalogue
from bench.seed import explorations as tuning_synthetic
from bench.seed import misses as synthetic_queue
from bench.seed import people as synthetic
from bench.seed import traffic as synthetic_traffic
from bench.seed.bulk import loading
from bench.seed.implementations import NotEmpty
from catalog import models as catalogue
from tuning import models as learned
from tuning.statistics import paid_back
from tuning.statistics.efforts import refresh_efforts

LOADED: tuple[type[Model], ...] = (
    catalogue.Operator, catalogue.Implementation, catalogue.Measurement, catalogue.Best,
    catalogue.BestChange, catalogue.Miss, catalogue.Job, catalogue.JobOperator, catalogue.JobDay,
    catalogue.JobPlace, catalogue.Usage,
    catalogue.LookupTally, catalogue.Model, catalogue.ModelOperator, catalogue.AuditEntry,
    learned.Exploration, learned.Trial, learned.TuningSlice, learned.Revalidated,
    learned.FailureGroup, learned.FailurePlace,
    *synthetic.LOADED,
)  # fmt: skip


class Command(BaseCommand):
    help = (
        "Fill an empty database with a SYNTHETIC service (invented, never measured): catalogue, traffic, "
        "explorations, money. The last line printed is JSON: two accounts and their passwords."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--implementations", type=int, default=1_000_000)
        parser.add_argument("--usage", type=int, default=10_000_000)
        parser.add_argument("--explorations", type=int, default=100_000)

    def handle(self, *args: Any, **options: Any) -> None:
        size = synthetic_catalogue.CatalogueSize(
            *(max(options[name], 0) for name in ("implementations", "usage", "explorations"))
        )
        self.started = time.monotonic()
        try:
            world = synthetic_catalogue.begin(size)
        except NotEmpty as error:
            raise CommandError(str(error)) from error
        people = synthetic.add_people(world)
        with loading(LOADED):
            self.fill(world)
            self.say("indexes")
        self.say("rollups")
        call_command("rebuild_rollups")
        refresh_efforts()
        paid_back.refresh()
        self.say("done")
        self.stdout.write(json.dumps({"people": people}))

    def fill(self, world: synthetic_catalogue.World) -> None:
        steps: tuple[tuple[str, Callable[[synthetic_catalogue.World], Any]], ...] = (
            ("operators", synthetic_catalogue.add_operators),
            ("implementations", synthetic_catalogue.add_results),
            ("misses", synthetic_queue.add_misses),
            ("audit log", synthetic_queue.add_audit),
        )
        for name, step in steps:
            self.say(name)
            step(world)
        self.say("explorations")
        explored, rows = tuning_synthetic.add_explorations(world)
        tuning_synthetic.add_revalidation(world, explored, rows)
        tuning_synthetic.add_workers(world)
        self.say("jobs and models")
        asked = synthetic_traffic.add_models_and_jobs(world)
        for done in synthetic_traffic.add_usage(world, asked):
            self.say(f"usage: {done:,} of {world.size.usage:,}")
        synthetic.add_rest(world, self.say)

    def say(self, what: str) -> None:
        """Progress, with the seconds since the beginning."""
        self.stderr.write(f"{time.monotonic() - self.started:6.1f} s  {what}")
