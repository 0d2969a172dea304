"""Invented explorations in every state, with trials and tuning slices, workers and a re-validation."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
from django.utils import timezone
from numpy.typing import NDArray

from bench.seed.bulk import insert
from bench.seed.catalogue import World, routes_of
from bench.seed.implementations import LABEL, NAME
from bench.seed.misses import STATES, states_of_missed
from catalog.models import SHARED, MissState
from tuning import models
from tuning.failures.grouping import FAILURES, fingerprint
from tuning.models import State

WORKERS = 24
REVALIDATED = 2_000
_RARE_CAUSES = 5_000

_FAILURES = (
    ("onednn", "library", "crashed", f"{NAME}: signal 11 (SIGSEGV) in the child after 0.4 s"),
    ("tvm", "compiler", "timed_out", f"{NAME}: built for 20 s; limit 20 s"),
    ("tvm", "compiler", "wrong_result", f"{NAME}: max error 0.31; tolerance 1e-4"),
    ("openblas", "library", "unsupported", f"{NAME}: OpenBLAS only multiplies matrices"),
    ("mkl", "library", "slower", f"{NAME}: 3.4× slower than the default after 3 samples"),
    ("halide", "compiler", "build_failed", f"{NAME}: the schedule has no such loop"),
)

# State of the miss → states of its exploration, by turns.
_OF_MISS: dict[MissState, tuple[State, ...]] = {
    MissState.PROMOTED: (State.QUEUED,) * 12 + (State.PAUSED,),
    MissState.UNSUPPORTED: (State.UNSUPPORTED,),
    MissState.DISCARDED: (State.DISCARDED,),
    MissState.FAILED: (State.DEAD,),
}


class Explored:
    """Which operators are explored, and how far: columns of the explorations."""

    def __init__(self, world: World) -> None:
        states = states_of_missed(world)
        missed = [(n, STATES[state][0]) for n, state in enumerate(states) if STATES[state][0] in _OF_MISS]
        # A tenth of the explorations concern what has no implementation; all others have brought some.
        missed = missed[: max(world.size.explorations // 7, 1)]
        on_known = max(min(world.size.explorations - len(missed), world.size.known), 0)
        chosen = np.sort(world.random.permutation(world.size.known)[:on_known])
        self.known = on_known
        self.operator = np.concatenate([chosen, [world.size.known + n for n, _ in missed]]).astype(np.int64)
        turns = np.arange(on_known) % 100
        self.state: list[str] = [
            State.QUEUED.value if turn < 5 else State.PAUSED.value if turn == 5 else State.DONE.value
            for turn in turns
        ] + [_OF_MISS[state][n % len(_OF_MISS[state])].value for n, (_, state) in enumerate(missed)]
        queued = [n for n, state in enumerate(self.state) if state == State.QUEUED]
        for n in queued[:: max(len(queued) // WORKERS, 1)][:WORKERS]:
            self.state[n] = State.RUNNING.value
        self.stage = np.where(np.arange(len(self.state)) < on_known, 2, 0)
        self.ended = np.asarray([state in ("done", "unsupported", "dead") for state in self.state])


def add_explorations(world: World) -> tuple[Explored, range]:
    """Explorations, asked for when their operators became known or missed."""
    random, explored = world.random, Explored(world)
    count = len(explored.operator)
    asked_s = np.minimum(world.known_at_s[explored.operator], world.now_s - 7200)
    asked_s[explored.known :] = random.integers(0, world.now_s - 7200, count - explored.known)
    first_s = asked_s + random.integers(2, 90, count)
    known = np.arange(count) < explored.known
    spent_s = random.gamma(2, 12, count).round(2)
    slices = np.where(known, random.integers(0, 4, count), 0)
    rows = insert(
        models.Exploration,
        {
            "operator_id": explored.operator + world.operators.start,
            **world.place, "scope": SHARED,
            "stage": explored.stage, "priority": random.choice(4, count, p=[0.02, 0.18, 0.6, 0.2]),
            "worth": random.lognormal(8, 2, count).round(1), "state": explored.state,
            "reason": [f"{NAME}: {state}" for state in explored.state],
            "capability": world.target.capability,
            "lease_owner": [
                f"{NAME}-{n % WORKERS}" if state == "running" else ""
                for n, state in enumerate(explored.state)
            ],
            "fence": 3, "tries": 0, "max_tries": 3,
            "error": [f"{NAME}: lost three times" if state == "dead" else "" for state in explored.state],
            "doing": [f"{NAME}: timing" if state == "running" else "" for state in explored.state],
            "steps_done": np.where(explored.ended, 9, random.integers(0, 9, count)), "steps_total": 9,
            "round": 0, "routes": "", "pending_routes": "", "round_reason": "",
            "tuning_slices": slices, "max_tuning_slices": 6, "spent_s": spent_s,
            "expected_gain": np.where(known, random.uniform(0.001, 0.2, count), 0.0).round(4),
            "calls": random.integers(1, 13, count).astype(float),
            "asked_at": world.moments(asked_s), "created_at": world.moments(asked_s),
            "first_result_at": _where(known, world.moments(first_s)),
            "expected_first_at": _where(known, world.moments(first_s + np.arange(count) % 21 - 6)),
            "updated_at": world.moments(first_s + 60),
            "finished_at": _where(explored.ended, world.moments(first_s + 60)),
        },
    )  # fmt: skip
    _add_trials(world, explored, rows, first_s)
    _add_slices(world, explored, rows, slices, first_s)
    return explored, rows


def _where(there: NDArray[np.bool_], texts: list[str]) -> list[str | None]:
    return [text if flag else None for flag, text in zip(there.tolist(), texts, strict=True)]


def _add_trials(world: World, explored: Explored, rows: range, first_s: NDArray[np.int64]) -> None:
    """Ten to an exploration of a known operator: its four implementations, and six that came to nothing. Two
    to one that is queued for the first time have not begun; what failed has its six failures."""
    shared = {
        "stage": 1, "round": 0, "fence": 3, "candidate": '{"synthetic":true}', "label": LABEL, "tier": "T2",
        "build_s": 0.4, "worker": f"{NAME}-0", "device": "{}",
    }  # fmt: skip
    numbers, owners = np.asarray(rows), explored.operator
    known = np.flatnonzero(np.arange(len(owners)) < explored.known)
    slots = (owners[known][:, None] * 4 + np.arange(4)).ravel()
    pairs = [pair for operator in owners[known].tolist() for pair in routes_of(operator)]
    default_us = np.repeat(world.default_us[owners[known]], 4)
    ratio = default_us / world.median_us[slots]
    current = {route: versions[1].pk for route, versions in world.environments.items()}
    insert(
        models.Trial,
        {
            **shared, "exploration_id": np.repeat(numbers[known], 4),
            "route": [route for route, _ in pairs], "method": [method for _, method in pairs],
            "status": "ok", "detail": "", "log_tail": "", "median_us": world.median_us[slots].round(3),
            "ratio_to_default": ratio.round(4), "ratio_low": (ratio * 0.97).round(4),
            "ratio_high": (ratio * 1.03).round(4), "max_error": 1e-7, "tolerance": 1e-4,
            "took_s": world.random.gamma(2, 0.8, len(slots)).round(2),
            "implementation_id": slots + world.implementations.start,
            "environment_id": [current[route] for route, _ in pairs],
            "created_at": world.moments(np.repeat(first_s[known], 4)),
        },
    )  # fmt: skip
    begun = np.flatnonzero((np.arange(len(owners)) < explored.known) | explored.ended)
    failures = _FAILURES * len(begun)
    insert(
        models.Trial,
        {
            **shared,
            "exploration_id": np.repeat(numbers[begun], len(_FAILURES)),
            "route": [f"{NAME}-{route}" for route, _, _, _ in failures],
            "method": [method for _, method, _, _ in failures],
            "status": [status for _, _, status, _ in failures],
            "detail": [detail for _, _, _, detail in failures],
            "log_tail": f"{NAME}: no log",
            "took_s": 2.0,
            "environment_id": [current[f"{NAME}-{route}"] for route, _, _, _ in failures],
            "created_at": world.moments(np.repeat(first_s[begun] + 20, len(_FAILURES))),
        },
    )
    _add_causes(world, numbers[begun], first_s[begun] + 20)


def _add_causes(world: World, begun: NDArray[np.int64], failed_s: NDArray[np.int64]) -> None:
    """What failed, by cause: those that struck every exploration, and thousands that struck one."""
    if not len(begun):
        return
    everywhere = [(f"{NAME}-{route}", status, detail) for route, _, status, detail in _FAILURES
                  if status in FAILURES]  # fmt: skip
    rare = [(f"{NAME}-tvm", "build_failed", f"{NAME}: no rule for pass-{chr(97 + number % 26)}{number}")
            for number in range(_RARE_CAUSES)]  # fmt: skip
    causes = everywhere + rare
    times = world.moments(np.concatenate([
        np.full(len(everywhere), failed_s.max()), np.resize(failed_s, len(rare))]))  # fmt: skip
    groups = insert(
        models.FailureGroup,
        {
            "scope": SHARED, "fingerprint": [fingerprint(status, text) for _, status, text in causes],
            "status": [status for _, status, _ in causes], "reason": [text[:200] for _, _, text in causes],
            "routes": [json.dumps([route]) for route, _, _ in causes], "again_by": "",
            "trials": [len(begun)] * len(everywhere) + [1] * len(rare),
            "operators": [len(begun)] * len(everywhere) + [1] * len(rare),
            "first_at": times, "last_at": times,
        },
    )  # fmt: skip
    places = np.concatenate([np.tile(begun, len(everywhere)), np.resize(begun, len(rare))])
    insert(
        models.FailurePlace,
        {
            "group_id": np.repeat(np.asarray(groups), [len(begun)] * len(everywhere) + [1] * len(rare)),
            "exploration_id": places, "routes": json.dumps([f"{NAME}-tvm"]), "trials": 1,
            "last_at": world.moments(
                np.concatenate([np.tile(failed_s, len(everywhere)), np.resize(failed_s, len(rare))])
            ),
        },
    )  # fmt: skip


def _add_slices(
    world: World, explored: Explored, rows: range, slices: NDArray[np.int64], first_s: NDArray[np.int64]
) -> None:
    owner = np.repeat(np.arange(len(slices)), slices)
    gained = np.where(world.random.random(len(owner)) < 0.3, world.random.uniform(0.01, 0.4, len(owner)), 0)
    before_us = world.default_us[explored.operator[owner]]
    insert(
        models.TuningSlice,
        {
            "exploration_id": np.asarray(rows)[owner],
            "route": f"{NAME}-tvm",
            "family": [world.families[number] for number in explored.operator[owner]],
            "expected_gain": world.random.uniform(0.001, 0.2, len(owner)).round(4),
            "gained": gained.round(4),
            "before_us": before_us.round(3),
            "after_us": (before_us * (1 - gained)).round(3),
            "seconds": world.random.uniform(8, 20, len(owner)).round(2),
            "created_at": world.moments(first_s[owner] + 40),
        },
    )


def add_workers(world: World) -> None:
    """Workers that are gone, but for a few that will seem alive for some seconds."""
    routes = {
        route: {"available": True, "reason": "", "versions": versions[1].versions}
        for route, versions in world.environments.items()
    }
    models.Worker.objects.bulk_create(
        models.Worker(
            name=f"{NAME}-{number}", host=NAME, pid=number + 2, target=world.target, routes=routes,
            tier="T2", warm=True, doing=f"{NAME}: timing", last_seen_at=timezone.now(),
        )
        for number in range(WORKERS)
    )  # fmt: skip


def add_revalidation(world: World, explored: Explored, rows: range) -> None:
    """What came of declaring the second version of a compiler, for some thousand bests."""
    route = f"{NAME}-tvm"
    former, declared = world.environments[route]
    run = models.Revalidation.objects.create(
        target=world.target,
        route=route,
        before=former,
        after=declared,
        asked_by=NAME,
        finished_at=world.began + timedelta(days=30),
    )
    models.Revalidation.objects.filter(pk=run.pk).update(asked_at=world.began + timedelta(days=29))
    count = min(REVALIDATED, explored.known)
    verdicts = ("same", "same", "same", "better", "worse", "failed", "restored")
    ratio = np.exp(world.random.normal(0.15, 0.4, count)).round(4)
    insert(
        models.Revalidated,
        {
            "revalidation_id": run.pk,
            "exploration_id": np.asarray(rows[:count]),
            "route": route,
            "implementation_id": explored.operator[:count] * 4 + world.implementations.start,
            "ratio_before": ratio,
            "ratio_low_before": (ratio * 0.97).round(4),
            "ratio_high_before": (ratio * 1.03).round(4),
            "ratio_after": (ratio * world.random.normal(1, 0.05, count)).round(4),
            "verdict": [verdicts[n % len(verdicts)] for n in range(count)],
            "detail": LABEL,
        },
    )
