"""Messy rows of queues, trials, workers, misses, jobs and models: several organisations, holes and zeroes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from catalog import models as c
from tests.catalog.recounting import recount_job_days
from tuning import models as t
from tuning.priority import Priority

OP_TYPES = ("Conv", "MatMul", "Relu", "Add")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(rows: Sequence[tuple[Any, datetime]]) -> None:
    """Rows, each with when it was created: by itself it would say now."""
    kind = type(rows[0][0])
    made = kind.objects.bulk_create([row for row, _ in rows])
    stored = connection.ops.adapt_datetimefield_value
    times = [(stored(created_at), row.pk) for row, (_, created_at) in zip(made, rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.executemany(f"UPDATE {kind._meta.db_table} SET created_at = %s WHERE id = %s", times)


class Mess:
    """Everything at once, the same for the same seed."""

    def __init__(self, seed: int = 3) -> None:
        self.random = random.Random(seed)
        self.now = timezone.now()
        self.organisations = [c.Organisation.objects.create(name=f"org {n}") for n in range(3)]
        self.targets = [
            c.Target.objects.create(
                key=f"t1:{digest(str(n))}", kind="cpu", arch=name, capability=f"cpu.{name}", description={}
            )
            for n, name in enumerate(("zen3", "zen5"))
        ]
        self.settings = [
            c.Setting.objects.create(
                key=f"s1:{digest(str(n))}", threads=n, cache="warm", description={"threads": n}
            )
            for n in (1, 2)
        ]
        self.operators = c.Operator.objects.bulk_create(
            c.Operator(
                key=f"o1:{digest(str(n))}", graph={}, op_type=OP_TYPES[n % 4], summary=f"operator {n}",
                dtype="float32", flops=n * 1e5, bytes_moved=n * 1e4,
            )
            for n in range(40)
        )  # fmt: skip
        self.environment = c.Environment.objects.create(digest=digest("e"), versions={})
        self.artifact = c.Artifact.objects.create(sha256=digest("a"), kind="recipe", manifest={})
        self._bests()
        self._explorations()
        self._workers()
        self._misses()
        self._jobs()
        self._model()

    def scope(self) -> dict[str, Any]:
        owner = self.random.choice([None, None, None, *self.organisations])
        return {"owner": owner, "scope": f"org:{owner.pk}" if owner else "shared"}

    def place(self) -> dict[str, Any]:
        return {"target": self.random.choice(self.targets), "setting": self.random.choice(self.settings)}

    def _bests(self) -> None:
        for operator in self.operators[:25]:
            for rank, (route, method) in enumerate((("onednn", "library"), ("tvm", "compiler"))):
                place, scope = self.place() if not rank else place, self.scope() if not rank else scope  # noqa: F821
                ratio = self.random.uniform(0.8, 3)
                default_us = self.random.uniform(5, 5000)
                common = {"operator": operator, **place, **scope, "route": route, "method": method}
                made = c.Implementation.objects.create(
                    **common, label=route, candidate={}, candidate_sha256=digest(f"{operator.pk}{route}"),
                    artifact=self.artifact, environment=self.environment,
                )  # fmt: skip
                times: dict[str, Any] = {
                    "median_us": default_us / ratio, "spread_us": 1, "default_us": default_us,
                    "ratio_to_default": ratio, "ratio_low": ratio, "ratio_high": ratio,
                }  # fmt: skip
                measured = c.Measurement.objects.create(implementation=made, tier="T2", **times)
                c.Best.objects.create(
                    **common, kind="recipe", implementation=made, measurement=measured, label=route,
                    artifact_sha256=self.artifact.sha256, measured_at=self.now, rank=rank, **times,
                )  # fmt: skip

    def _explorations(self) -> None:
        chance = self.random
        rows: dict[Any, t.Exploration] = {}
        trials: list[tuple[t.Trial, datetime]] = []
        slices: list[tuple[t.TuningSlice, datetime]] = []
        for n, operator in enumerate(self.operators * 3):
            place, scope, state = self.place(), self.scope(), chance.choice(t.State.values)
            asked = self.now - timedelta(seconds=chance.uniform(0, 200_000))
            stage = chance.choice(t.Stage.values)
            ended = state in ("done", "unsupported", "discarded", "dead")
            row = t.Exploration(
                operator=operator, **place, **scope, stage=stage, priority=chance.choice(list(Priority)),
                state=state, worth=chance.choice([0, chance.uniform(0, 1e6)]),
                capability=place["target"].capability, asked_at=asked, fence=chance.randint(1, 9),
                lease_owner="w1@host/7" if state == "running" else "", steps_done=n % 7,
                steps_total=chance.choice([0, 6]), tuning_slices=chance.randint(0, 5),
                max_tuning_slices=chance.randint(0, 5), spent_s=chance.uniform(0, 60),
                round=chance.randint(0, 1), doing=chance.choice(["", "claimed", "tvm: building"]),
                first_result_at=asked + timedelta(seconds=9) if chance.random() < 0.6 else None,
                finished_at=self.now - timedelta(hours=chance.uniform(0, 40)) if ended else None,
            )  # fmt: skip
            if rows.setdefault((operator.pk, *place.values(), row.scope), row) is row:
                self._trials(row, trials, slices)
        t.Exploration.objects.bulk_create(rows.values())
        for made in (trials, slices):
            _write(made)

    def _trials(
        self,
        row: t.Exploration,
        trials: list[tuple[t.Trial, datetime]],
        slices: list[tuple[t.TuningSlice, datetime]],
    ) -> None:
        chance = self.random
        at = self.now - timedelta(seconds=chance.uniform(10, 9_000))
        for fence in range(chance.randint(0, row.fence)):
            for _ in range(chance.randint(1, 3)):
                began, at = at, at + timedelta(seconds=chance.uniform(0.1, 9))
                trial = t.Trial(
                    exploration=row, route="tvm", method="compiler", stage=min(fence % 3, row.stage),
                    round=chance.randint(0, row.round), fence=fence + 1, status="ok",
                    worker=chance.choice(["w1@host/7", "w1@host/8", "w2@host/3"]), took_s=1.5,
                    started_at=began if chance.random() < 0.8 else None,
                )  # fmt: skip
                trials.append((trial, at))
            if chance.random() < 0.4:
                slice_ = t.TuningSlice(
                    exploration=row, route="tvm", family="x", expected_gain=0.1, gained=0,
                    seconds=chance.uniform(5, 20),
                )  # fmt: skip
                slices.append((slice_, at + timedelta(seconds=0.5)))

    def _workers(self) -> None:
        for n, (silent_s, stopped) in enumerate(((-600, False), (-600, False), (900, False), (2, True))):
            t.Worker.objects.create(
                name=f"w{n + 1}@host", host="host", pid=n, target=self.targets[n % 2],
                last_seen_at=self.now - timedelta(seconds=silent_s), stopped_at=self.now if stopped else None,
            )  # fmt: skip

    def _misses(self) -> None:
        reasons = ("", "", "too large", "its queue is paused")
        rows: dict[Any, c.Miss] = {}
        for operator in self.operators:
            for _ in range(2):
                place, scope = self.place(), self.scope()
                miss = c.Miss(
                    operator=operator, **place, **scope, state=self.random.choice(c.MissState.values),
                    reason=self.random.choice(reasons), calls=self.random.randint(0, 99),
                    related=self.random.random() < 0.3,
                )  # fmt: skip
                rows.setdefault((operator.pk, *place.values(), miss.scope), miss)
        c.Miss.objects.bulk_create(rows.values())

    def _jobs(self) -> None:
        chance = self.random
        self.jobs = [
            c.Job.objects.create(organisation=organisation, name=f"job {n}")
            for n, organisation in enumerate((*self.organisations, *self.organisations))
        ]
        made = list(c.Implementation.objects.all())
        usage = []
        for n in range(700):
            one = chance.choice(made)
            job = chance.choice([None, *self.jobs[:-1]])  # the last one was never served
            default_us = chance.uniform(5, 500)
            usage.append(c.Usage(
                organisation=job.organisation if job else self.organisations[0], job=job,
                operator_id=one.operator_id, implementation=one if chance.random() < 0.9 else None,
                method=one.method, route=one.route, median_us=default_us / chance.uniform(0.9, 3),
                default_us=default_us, calls=chance.choice([0, 1, 12.5]),
                served_at=self.now - timedelta(hours=chance.uniform(0, 24 * 40)), node="n", segment="s",
                offset=n, item=0,
            ))  # fmt: skip
        c.Usage.objects.bulk_create(usage)
        c.JobOperator.objects.bulk_create(
            c.JobOperator(
                job=job, operator=operator, hits=chance.randint(0, 9), misses=chance.randint(0, 9),
                miss_calls=chance.choice([0, 3, 40.5]), last_at=self.now,
            )
            for job in self.jobs
            for operator in chance.sample(self.operators, 20)
        )  # fmt: skip
        recount_job_days()

    def _model(self) -> None:
        self.model = c.Model.objects.create(
            organisation=self.organisations[0], name="m", sha256=digest("m"), form="onnx",
            target=self.targets[0], setting=self.settings[0], unmapped={"loop": 5, "if": 2},
        )  # fmt: skip
        c.ModelOperator.objects.bulk_create(
            c.ModelOperator(model=self.model, operator=operator, calls=self.random.randint(1, 9), example="x")
            for operator in self.operators[5:35]
        )
        self.model.calls = 7 + sum(row.calls for row in self.model.operators.all())
        self.model.save()
