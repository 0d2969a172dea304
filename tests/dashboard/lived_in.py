"""What a home's service does before its pictures are taken: models are given and explored, and each job asks
for what it had asked for, as its next run would. ``python -m tests.dashboard.lived_in URL``, over the home
that the environment names, whose service answers at URL."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

WARM_S = 300.0
BATCH = 1024
RUNS = 3
"""Of each job: the next ones after the run that missed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--give", nargs="*", default=[], help="models: sample:squeezenet, a file")
    parser.add_argument("--explore-s", type=float, default=0.0, help="at most, until contests have ended")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    from django.core.management import call_command

    from tuning.queue import steering

    steering.resume("*")  # a bench pauses what its budget does not cover
    waited(WARM_S, "a warm worker", is_warm)
    for model in options.give:
        call_command("add_model", model)
    waited(options.explore_s, "contests to end", are_contested)
    ask_again(options.url)


def waited(most_s: float, what: str, holds: Callable[[], bool]) -> None:
    """Until it holds, and not longer than that."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > most_s:
            print(f"Waited {most_s:.0f} s for {what}: pictures are taken as it is.", flush=True)
            return
        time.sleep(1)


def is_warm() -> bool:
    from django.utils import timezone

    from tuning.models import Worker

    return Worker.objects.filter(warm=True, stopped_at=None, target__served_until__gt=timezone.now()).exists()


def are_contested() -> bool:
    from catalog.models import Miss, MissState
    from tuning.models import Exploration, Stage, State

    waiting = Miss.objects.filter(state=MissState.WAITING).exists()
    open_ones = Exploration.objects.filter(state__in=(State.QUEUED, State.RUNNING), stage__lt=Stage.TUNE)
    return not waiting and not open_ones.exists()


def ask_again(url: str) -> None:
    """Further runs of each job that has a name, over REST: what is known by now hits."""
    from catalog.models import Job
    from catalog.people.keys import create_api_key
    from opatlas.client import RestClient

    for job in Job.objects.exclude(name="").select_related("organisation"):
        asked = job.operators.order_by("number", "pk").values_list(
            "operator__key", "hits", "misses", "hit_calls", "miss_calls"
        )
        rows = [(key, (hit + missed) / ((hits + misses) or 1)) for key, hits, misses, hit, missed in asked]
        _, secret = create_api_key(job.organisation, job.name[:40], ["lookup"])
        with RestClient(url, secret, job=job.name) as client:
            for start in [*range(0, len(rows), BATCH)] * RUNS:
                keys, calls = zip(*rows[start : start + BATCH], strict=True)
                answers = client.lookup(keys, calls=calls)
                print(f"{job.name}: {sum(one.hit for one in answers)} of {len(keys)} hit", flush=True)


if __name__ == "__main__":
    main()
