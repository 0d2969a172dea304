"""Which versions count: list them, declare others, go back."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import CallerCommand
from catalog.selectors.targets import HERE, target_named
from tuning.environments import declaring, revalidation
from tuning.environments import known as environments
from tuning.environments.known import RouteEnvironments
from tuning.models import Revalidation, Worker


class Command(CallerCommand):
    help = "List environments by target and route; declare what a worker brings; go back to an earlier one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--worker", help="declare what this worker brings")
        parser.add_argument("--route", help="only this route")
        parser.add_argument("--environment", help="declare this one (its digest's beginning) for --route")
        parser.add_argument(
            "--target", default="", help="a target's key or capability, or here, where there are several"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["worker"]:
            self._declare_worker(options)
        elif options["environment"]:
            self._declare(options)
        else:
            self._list(options)

    def _list(self, options: dict[str, Any]) -> None:
        for standing in self._chosen(options):
            self.stdout.write(f"{standing.target.capability} {standing.route}:")
            for offer in standing.offers:
                mark = "*" if offer.declared else " "
                workers = ", ".join(offer.workers) or "no live worker"
                self.stdout.write(f"  {mark} {offer.environment[:12]} {offer} ({workers})")
        for row in Revalidation.objects.filter(finished_at=None).select_related("after"):
            self.stdout.write(f"measuring again, {row}: {revalidation.report(row)}")

    def _declare_worker(self, options: dict[str, Any]) -> None:
        worker = Worker.objects.select_related("target").filter(name=options["worker"]).first()
        if worker is None:
            raise CommandError(f"There is no worker {options['worker']!r}.")
        routes = [options["route"]] if options["route"] else None
        self._say(declaring.declare_worker(worker, getpass.getuser(), routes))

    def _declare(self, options: dict[str, Any]) -> None:
        if not options["route"]:
            raise CommandError("Name the route: --route tvm.")
        found = [
            (standing, offer)
            for standing in self._chosen(options)
            for offer in standing.offers
            if offer.environment.startswith(options["environment"])
        ]
        if len(found) != 1:
            raise CommandError(
                f"{len(found)} environments fit: give more of the digest, or a --target. "
                "Without options they are listed."
            )
        standing, offer = found[0]
        row = declaring.declare_known(standing.target, standing.route, offer.environment, getpass.getuser())
        self._say([row] if row else [])

    def _chosen(self, options: dict[str, Any]) -> list[RouteEnvironments]:
        target, route = options["target"], options["route"]
        if target == HERE:
            target = target_named(HERE).key
        return [
            standing
            for standing in environments.route_environments()
            if target in ("", standing.target.key, standing.target.capability)
            and route in (None, standing.route)
        ]

    def _say(self, rows: list[Revalidation]) -> None:
        if not rows:
            self.stdout.write("Declared already: nothing was changed.")
        for row in rows:
            self.stdout.write(f"declared: {row}. {revalidation.report(row)}.")
