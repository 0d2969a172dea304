"""Steer the explore queues by hand."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import CallerCommand
from tuning.models import Exploration, Pause, State
from tuning.priority import Priority
from tuning.queue import steering as queues


class Command(CallerCommand):
    help = "Steer the explore queues: list, pause, resume, retry, discard, prioritise."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="what waits, runs, and is paused")
        listing.add_argument("--state", choices=State.values, action="append")
        listing.add_argument("--limit", type=int, default=50)
        pause = verbs.add_parser("pause", help="pause a capability's queues, all of them, or one exploration")
        pause.add_argument(
            "what", nargs="?", default="*", help="cpu.zen3, * (the default), or an exploration's number"
        )
        pause.add_argument("--reason", default="")
        resume = verbs.add_parser("resume", help="end a pause")
        resume.add_argument("what", nargs="?", default="*")
        retry = verbs.add_parser("retry", help="explore afresh: by number, or every one in a state")
        retry.add_argument("exploration", nargs="*", type=int)
        retry.add_argument("--state", choices=[str(state) for state in queues.ENDED])
        discard = verbs.add_parser("discard", help="give up, with a reason")
        discard.add_argument("exploration", nargs="+", type=int)
        discard.add_argument("--reason", required=True)
        prioritise = verbs.add_parser("prioritise", help="move to another explore queue")
        prioritise.add_argument("exploration", nargs="+", type=int)
        prioritise.add_argument("--priority", type=int, required=True, choices=[*map(int, Priority)])

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['verb']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        for row in Pause.objects.order_by("capability"):
            self.stdout.write(f"paused: {row.capability} ({row.reason or 'no reason given'})")
        states = options["state"] or [State.RUNNING, State.QUEUED, State.PAUSED]
        rows = Exploration.objects.filter(state__in=states).select_related("operator")
        for exploration in rows.order_by("state", *("stage", "priority", "-worth"))[: options["limit"]]:
            self._say(exploration)
        self.stdout.write(f"{rows.count()} explorations are {' or '.join(states)}.")

    def _pause(self, options: dict[str, Any]) -> None:
        if options["what"].isdigit():
            return self._say(queues.pause_exploration(int(options["what"]), options["reason"]))
        queues.pause(options["what"], options["reason"])
        return self.stdout.write(f"paused: {options['what']}")

    def _resume(self, options: dict[str, Any]) -> None:
        if options["what"].isdigit():
            return self._say(queues.resume_exploration(int(options["what"])))
        found = queues.resume(options["what"])
        return self.stdout.write(f"{'resumed' if found else 'was not paused'}: {options['what']}")

    def _retry(self, options: dict[str, Any]) -> None:
        numbers = list(options["exploration"])
        if options["state"]:
            numbers += Exploration.objects.filter(state=options["state"]).values_list("pk", flat=True)
        for number in numbers:
            self._say(queues.retry(number))
        self.stdout.write(f"{len(numbers)} explorations are queued afresh.")

    def _discard(self, options: dict[str, Any]) -> None:
        for number in options["exploration"]:
            self._say(queues.discard(number, options["reason"]))

    def _prioritise(self, options: dict[str, Any]) -> None:
        for number in options["exploration"]:
            self._say(queues.prioritise(number, options["priority"]))

    def _say(self, row: Exploration) -> None:
        queue = row.priority_name
        self.stdout.write(
            f"{row.pk:>6}  {row.state:<11} {row.get_stage_display():<12} {queue:<7} "
            f"worth {row.worth:>10.0f} µs  {row.operator}  {row.doing or row.reason}"
        )
