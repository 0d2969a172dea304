"""A plausible catalogue for pages: operators, implementations, explorations, workers, models, traffic.

For tests and screenshots of pages only: nothing here was measured.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from catalog import models as c
from catalog.best.machine_code import keep_code
from catalog.best.withdrawing import withdraw
from catalog.registry import (
    default_organisation,
    register_environment,
    register_setting,
    register_target,
)
from catalog.rollups.rollups import refresh_rollups
from catalog.usage import job_days
from catalog.usage.journal_line import JournalHit, JournalLine
from catalog.usage.stale import mark_stale
from catalog.usage.succession import add_successions
from opatlas import identity
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.graph.types import TensorType
from opatlas.streams.timeline import Timeline, TimelineBox, TimelineWait
from tests.catalog.making import GPU
from tests.dashboard.keeping import kept
from tests.dashboard.operation.growth.making import sizes
from tests.dashboard.races import contest_report, first_report, keep_race
from tuning import models as t
from tuning import planning, timelines
from tuning.failures.grouping import note_failure
from tuning.uploads.models import Upload

ROUTES = (
    ("eager", "library", "as called"),
    ("onednn", "library", "packed weights, nChw16c"),
    ("onnxruntime", "library", "MLAS, constant weights"),
    ("mkl", "library", "channels-last"),
    ("tvm", "compiler", "untuned CPU schedule"),
    ("openblas", "library", "sgemm, transposed second operand"),
)
TVM_SOURCE = """\
# from tvm.script import tir as T
@T.prim_func(s_tir=True)
def main(in0: T.Buffer((1, 64, 56, 56), "float32"), in1: T.Buffer((64, 64, 3, 3), "float32"),
         out0: T.Buffer((1, 64, 56, 56), "float32")):
    T.func_attr({"target": T.target({"kind": "llvm", "mcpu": "znver3"}), "tir.noalias": True})
    for n_c_fused in T.parallel(64):
        for h, w in T.grid(56, 56):
            with T.sblock("conv"):
                out0[0, n_c_fused, h, w] = T.float32(0.0)
                for rc, rh, rw in T.grid(64, 3, 3):
                    out0[0, n_c_fused, h, w] += in0[0, rc, h + rh, w + rw] * in1[n_c_fused, rc, rh, rw]
"""


MACHINE_CODE = """\
opatlas_run:
    1200:\tpush   rbp
    1201:\tmov    rbp,rsp
    1204:\tmov    rdi,QWORD PTR [rdi]
    1207:\tcall   1040 <conv2d_compute_@plt>
    120c:\tpop    rbp
    120d:\tret

conv2d_compute_:
    1100:\tvxorps ymm0,ymm0,ymm0
    1104:\txor    eax,eax
; innermost loop: 6 instructions, 4 of them vector arithmetic
    1110:\tvbroadcastss ymm2,DWORD PTR [rsi+rax*4]
    1116:\tvfmadd231ps ymm0,ymm2,YMMWORD PTR [rdx]
    111b:\tvfmadd231ps ymm1,ymm2,YMMWORD PTR [rdx+0x20]
    1121:\tvfmadd231ps ymm3,ymm2,YMMWORD PTR [rdx+0x40]
    1127:\tvfmadd231ps ymm4,ymm2,YMMWORD PTR [rdx+0x60]
    112d:\tjne    1110 <conv2d_compute_+0x10>
    1133:\tvzeroupper
    1136:\tret

opatlas_prepare:
; innermost loop: 3 instructions, 0 of them vector arithmetic
    1300:\tmov    rax,QWORD PTR [rsi]
    1303:\tdec    ecx
    1305:\tjne    1300 <opatlas_prepare>
    1307:\tret"""


class Factory:
    """Makes rows with a seeded generator, so that two runs give the same pages."""

    def __init__(self, seed: int = 7, now: datetime | None = None, mark: str = "") -> None:
        """``mark`` sets names apart from those of another factory in the same database."""
        self.random = random.Random(seed)
        self.mark = mark
        self.now = now or timezone.now()
        self.organisation = default_organisation()
        self.target = self._target()
        self.setting, _ = c.Setting.objects.get_or_create(
            key="s1:" + _digest("setting"),
            defaults={"threads": 2, "cache": "warm", "description": {"threads": 2, "cache": "warm"}},
        )
        versions = {"torch": "2.13.0", "apache-tvm": "0.27.0.post1"}
        self.environment, _ = c.Environment.objects.get_or_create(
            digest=_digest("environment"), defaults={"versions": versions}
        )
        self.artifact, _ = c.Artifact.objects.get_or_create(
            sha256=_digest("artifact"),
            defaults={"kind": "recipe", "manifest": {"recipe": {"library": "torch"}}},
        )
        self.compiled, _ = c.Artifact.objects.get_or_create(
            sha256=_digest("compiled"), defaults={"kind": "c-abi", "manifest": {"files": {}}}
        )

    def _target(self) -> c.Target:
        description = {
            "kind": "cpu", "arch": "zen3", "vendor": "AuthenticAMD", "isa": "x86_64", "cores": 2,
            "features": ["avx2", "fma"], "cache_bytes": {"l1d": 32768, "l2": 524288, "l3": 33554432},
        }  # fmt: skip
        return c.Target.objects.get_or_create(
            key="t1:" + _digest("target"),
            defaults={
                "kind": "cpu", "arch": "zen3", "capability": "cpu.zen3", "description": description,
                "served_until": self.now + timedelta(minutes=10),
            },
        )[0]  # fmt: skip

    @property
    def where(self) -> dict[str, Any]:
        return {"target": self.target, "setting": self.setting}

    def operator(self, op_type: str, summary: str, dtype: str = "float32") -> c.Operator:
        graph = {
            "opset": 23,
            "inputs": [
                {"dtype": dtype, "shape": [1, 64, 56, 56], "role": "runtime"},
                {"dtype": dtype, "shape": [64, 64, 3, 3], "role": "const"},
            ],
            "nodes": [{"op": op_type.split("+")[0], "inputs": [0, 1], "outputs": [2],
                       "attrs": {"group": 1, "pads": [1, 1, 1, 1], "strides": [1, 1]}}],
            "outputs": [2],
            "produced": [{"dtype": dtype, "shape": [1, 64, 56, 56], "role": "runtime"}],
        }  # fmt: skip
        size = self.random.uniform(1e6, 4e8)
        summary += self.mark
        return c.Operator.objects.create(
            key="o1:" + _digest(summary), graph=graph, op_type=op_type, summary=summary, dtype=dtype,
            flops=size, bytes_moved=size / 30,
        )  # fmt: skip

    def implement(
        self, operator: c.Operator, routes: Iterable[tuple[str, str, str]] = ROUTES
    ) -> list[c.Best]:
        """One implementation, measurement, trial-less best per route; the fastest is rank 0."""
        default_us = self.random.lognormvariate(5.5, 1.6)
        made = []
        for route, method, label in routes:
            ratio = 1.0 if route == "eager" else self.random.lognormvariate(0.2, 0.45)
            made.append(self._unsaved(operator, route, method, label, default_us, ratio))
        c.Implementation.objects.bulk_create(imp for imp, _ in made)
        c.Measurement.objects.bulk_create(measurement for _, measurement in made)
        made.sort(key=lambda pair: pair[1].median_us)
        bests = [
            c.Best(
                operator=operator, **self.where, route=imp.route, method=imp.method,
                kind="recipe" if imp.method == "library" else "c-abi",
                implementation=imp, measurement=m, label=imp.label, artifact_sha256=imp.artifact.sha256,
                median_us=m.median_us, spread_us=m.spread_us, default_us=m.default_us,
                ratio_to_default=m.ratio_to_default, ratio_low=m.ratio_low, ratio_high=m.ratio_high,
                measured_at=self.now, rank=rank,
            )
            for rank, (imp, m) in enumerate(made)
        ]  # fmt: skip
        c.Best.objects.bulk_create(bests)
        for imp, _ in made:
            if imp.artifact == self.compiled:
                keep_code(imp, MACHINE_CODE, len(MACHINE_CODE.splitlines()), "objdump", "")
        winner = made[0][0]
        eager = next((imp for imp, _ in made if imp.route == "eager"), None)
        c.BestChange.objects.create(
            operator=operator, **self.where, after=eager, reason="first verified result"
        )
        if winner != eager:
            c.BestChange.objects.create(
                operator=operator, **self.where, before=eager, after=winner,
                reason=f"{made[0][1].ratio_to_default:.2f}× against the default's 1.00×, beyond the noise",
            )  # fmt: skip
        return bests

    def _measured(
        self, operator: c.Operator, route: str, method: str, label: str, default_us: float, ratio: float
    ) -> tuple[c.Implementation, c.Measurement]:
        made = self._unsaved(operator, route, method, label, default_us, ratio)
        for row in made:
            row.save()
        return made

    def _unsaved(
        self, operator: c.Operator, route: str, method: str, label: str, default_us: float, ratio: float
    ) -> tuple[c.Implementation, c.Measurement]:
        implementation = c.Implementation(
            operator=operator, **self.where, route=route, method=method, label=label,
            candidate={"variant": label}, candidate_sha256=_digest(f"{operator.key}{route}{label}"),
            schedule=TVM_SOURCE if route == "tvm" else "",
            artifact=self.compiled if route == "tvm" else self.artifact,
            source="" if route == "tvm" else '{"call": "conv2d", "layout": "nhwc", "packed": true}',
            environment=self.environment, build_s=self.random.uniform(0.01, 4),
        )  # fmt: skip
        median = default_us / ratio
        measurement = c.Measurement(
            implementation=implementation, median_us=median,
            spread_us=median * self.random.uniform(0.005, 0.05),
            default_us=default_us, ratio_to_default=ratio, ratio_low=ratio * 0.97, ratio_high=ratio * 1.03,
            samples_us=[median] * 7, max_error=self.random.uniform(1e-8, 4e-6), tolerance=1e-4,
            prepare_us=40.0, prepare_bytes=147456, tier="T2",
        )  # fmt: skip
        return implementation, measurement

    def miss(self, operator: c.Operator, state: str, reason: str = "", calls: float = 1) -> c.Miss:
        return c.Miss.objects.create(
            operator=operator, **self.where, state=state, reason=reason, calls=calls,
            count=self.random.randint(1, 9),
        )  # fmt: skip

    def explore(self, operator: c.Operator, state: str, stage: int = 1, **more: Any) -> t.Exploration:
        asked = self.now - timedelta(seconds=self.random.uniform(20, 4000))
        values: dict[str, Any] = {
            "operator": operator, **self.where, "stage": stage, "state": state, "capability": "cpu.zen3",
            "priority": self.random.choice([1, 2, 2, 2, 3]), "worth": self.random.uniform(100, 90_000),
            "asked_at": asked, "steps_total": 9, "steps_done": self.random.randint(1, 8),
            "spent_s": self.random.uniform(1, 40), "max_tuning_slices": 6, "tuning_slices": max(stage - 1, 0),
        }  # fmt: skip
        if stage > 0 or state == "done":
            came = asked + timedelta(seconds=self.random.uniform(1.2, 20))
            off = timedelta(seconds=operator.pk % 9 - 3)
            values |= {"first_result_at": came, "expected_first_at": came + off}
        if state == "done":
            values |= {"steps_done": 9, "finished_at": asked + timedelta(seconds=45)}
        return t.Exploration.objects.create(**(values | more))

    def trials(self, exploration: t.Exploration, failures: bool = True) -> None:
        """Trials of every kind of end, with the details that children report."""
        bad = [
            (
                "tvm",
                "compiler",
                "tuned, 32 trials",
                "wrong_result",
                "max error 0.31 at [0, 3, 1, 1]; tolerance 1e-4",
            ),
            ("tvm", "compiler", "unrolled ×64", "timed_out", "built for 20 s; limit 20 s"),
            ("onednn", "library", "Winograd", "crashed", "signal 11 (SIGSEGV) in the child after 0.4 s"),
            ("openblas", "library", "", "unsupported", "Conv: OpenBLAS only multiplies matrices"),
            ("mkl", "library", "strided", "slower", "3.4× slower than the default after 3 samples"),
        ]
        common = {"exploration": exploration, "stage": 1, "environment": self.environment, "tier": "T2"}
        measured = c.Measurement.objects.filter(implementation__operator=exploration.operator)
        trials = []
        for m in measured.select_related("implementation").order_by("implementation"):
            implementation = m.implementation
            trials.append(t.Trial(
                **common, route=implementation.route, method=implementation.method,
                label=implementation.label, status="ok", median_us=m.median_us,
                ratio_to_default=m.ratio_to_default, ratio_low=m.ratio_low, ratio_high=m.ratio_high,
                max_error=m.max_error, tolerance=m.tolerance, build_s=0.4, took_s=1.3,
                implementation=implementation, worker="worker-1@node",
            ))  # fmt: skip
        for route, method, label, status, detail in bad if failures else []:
            trials.append(t.Trial(
                **common, route=route, method=method, label=label, status=status, detail=detail, took_s=2.0,
                log_tail="Traceback (most recent call last):\n  …" if status == "crashed" else "",
                worker="worker-1@node",
            ))  # fmt: skip
        for trial in t.Trial.objects.bulk_create(trials):
            note_failure(trial)

    def job(self, name: str, operators: Iterable[c.Operator], owner: c.Organisation | None = None) -> c.Job:
        """A job with its usage rows of the last days, counted as the journal's would be."""
        job = c.Job.objects.create(organisation=owner or self.organisation, name=name + self.mark)
        rows, usage, operators = [], [], list(operators)
        leading = {best.operator_id: best for best in c.Best.objects.filter(operator__in=operators, rank=0)}
        for item, operator in enumerate(operators):
            hits, misses, calls = self.random.randint(0, 40), self.random.randint(0, 2), item % 7 + 1
            best = leading.get(operator.pk)
            served = self._served(job, best, item, hits, calls) if best else []
            usage += served
            rows.append(
                c.JobOperator(
                    job=job, operator=operator, hits=hits, misses=misses,
                    hit_calls=calls * hits, miss_calls=calls * misses,
                    saved_us=sum(row.calls * (row.default_us - row.median_us) for row in served),
                )
            )  # fmt: skip
        c.JobOperator.objects.bulk_create(rows)
        in_order = [row.operator_id for row in rows]
        line = JournalLine(0, timezone.now(), job.organisation_id, job.name, [], [], in_order)
        add_successions([(job.pk, line)])
        c.Usage.objects.bulk_create(usage, batch_size=500)
        columns = JournalHit._fields
        job_days.add_job_days(
            [
                (row.job_id or 0, row.served_at, JournalHit._make(getattr(row, name) for name in columns))
                for row in usage
            ]
        )
        for at, hits in Counter(row.served_at.replace(minute=0, second=0) for row in usage).items():
            job_days.add_cache_day(job.pk, at, _said_by_clients(hits))
        return job

    def _served(self, job: c.Job, best: c.Best, item: int, hits: int, calls: int) -> list[c.Usage]:
        return [
            c.Usage(
                organisation_id=job.organisation_id, job=job, operator_id=best.operator_id,
                implementation_id=best.implementation_id, method=best.method, route=best.route,
                median_us=best.median_us, default_us=best.default_us, calls=calls,
                served_at=self.now - timedelta(hours=2.5 * hit, minutes=item % 60), node="made-up",
                segment=str(job.pk), offset=hit, item=item,
            )
            for hit in range(hits)
        ]  # fmt: skip

    def model(
        self, name: str, operators: Iterable[c.Operator], unmapped: dict[str, int] | None = None
    ) -> c.Model:
        model = c.Model.objects.create(
            organisation=self.organisation, name=name + self.mark, sha256=_digest(name + self.mark),
            form="onnx", **self.where, unmapped=unmapped or {}, hits_before=0.21,
        )  # fmt: skip
        rows = [
            c.ModelOperator(
                model=model, operator=operator, calls=self.random.randint(1, 12), example=f"/layer{i}/Conv"
            )
            for i, operator in enumerate(operators)
        ]
        c.ModelOperator.objects.bulk_create(rows)
        model.calls = sum(row.calls for row in rows) + sum((unmapped or {}).values())
        model.save()
        return model

    def structure(self, model: c.Model) -> c.StoredStructure:
        """The model's operators one after the other, each as often as it is called."""
        counted = list(model.operators.select_related("operator").order_by("pk"))
        calls = [(one.operator, one.example) for one in counted for _ in range(one.calls)]
        self.random.shuffle(calls)
        nodes = tuple(
            StructureNode(operator.op_type, example, (at,), (at + 1,), operator=operator.key, tensors=(at,))
            for at, (operator, example) in enumerate(calls)
        )
        types = (TensorType(1, (1,)),) * (len(nodes) + 1)
        made = ModelStructure(f"m1:{_digest(model.name)}", (0,), (len(nodes),), nodes, types)
        model.structure_key = made.key
        model.save(update_fields=["structure_key"])
        return c.StoredStructure.objects.create(model=model, packed=made.packed())

    def run(self, model: c.Model) -> c.PlanTimeline:
        """By the model's plan in two streams, as a session told it: a wait where they meet."""
        place, owner = (model.target, model.setting), model.organisation or self.organisation
        made = planning.make_plan(planning.structure_of_model(model), *place, owner)
        row, _ = planning.keep_plan(made, owner, *place, model)
        boxes, waits, free_at, chance = [], [], [0.0, 0.0], random.Random(18)
        for at, step in enumerate(made.plan.steps):
            stream, took_us = chance.randrange(2), (step.predicted_us or 90.0) * chance.uniform(0.8, 1.3)
            if at % 7 == 6 and (late_us := free_at[1 - stream] - free_at[stream]) > 0:
                waits.append(TimelineWait(stream, f"Step {at - 1}", free_at[stream], late_us))
                free_at[stream] += late_us
            boxes.append(TimelineBox(stream, f"Step {at}", free_at[stream], took_us, by=step.by.said))
            free_at[stream] += took_us + 4.0
        return timelines.keep_timeline(row, Timeline(("stream 0", "stream 1"), tuple(boxes), tuple(waits)))

    def traffic(self, operators: Iterable[c.Operator], hours: int = 24 * 8) -> None:
        """Hourly tallies whose hit rate climbs, with nights."""
        this_hour = self.now.replace(minute=0, second=0, microsecond=0)
        chosen = list(operators)
        bests = c.Best.objects.filter(operator__in=chosen, rank=0)
        saved_us = {best.operator_id: best.default_us - best.median_us for best in bests}
        rows = []
        for back in range(hours, -1, -1):
            day = 1 + 0.7 * math.sin(back / 24 * 2 * math.pi)
            rate = 0.35 + 0.6 * (1 - back / hours) ** 0.7
            for operator in chosen:
                asked = max(int(self.random.gauss(5, 2) * day), 0)
                hits = min(int(asked * min(rate * self.random.uniform(0.93, 1.05), 1)), asked)
                rows.append(
                    c.LookupTally(
                        hour=this_hour - timedelta(hours=back), operator=operator,
                        organisation=self.organisation,
                        hits=hits, misses=asked - hits, hit_calls=hits * 3, miss_calls=(asked - hits) * 3,
                        saved_us=hits * 3 * saved_us.get(operator.pk, 0.0),
                    )
                )  # fmt: skip
        c.LookupTally.objects.bulk_create(rows)
        mark_stale({row.hour for row in rows})
        refresh_rollups()

    def workers(self) -> None:
        routes = {
            "eager": {"available": True, "reason": "", "versions": {"torch": "2.13.0"}},
            "onnxruntime": {"available": True, "reason": "", "versions": {"onnxruntime": "1.31.1"}},
            "onednn": {"available": True, "reason": "", "versions": {"torch": "2.13.0"}},
            "mkl": {"available": False, "reason": "This build of PyTorch has no MKL.", "versions": {}},
            "openblas": {"available": True, "reason": "", "versions": {"numpy": "2.4.6"}},
            "tvm": {"available": True, "reason": "", "versions": {"apache-tvm": "0.27.0.post1"}},
        }
        common = {"target": self.target, "routes": routes, "tier": "T2"}
        t.Worker.objects.create(
            **common, name=f"worker-1@node{self.mark}", host="node", pid=4211, warm=True,
            doing="tvm: timing Conv 1×256×14×14", last_seen_at=self.now - timedelta(seconds=1),
        )  # fmt: skip
        t.Worker.objects.create(
            **common, name=f"worker-2@node{self.mark}", host="node", pid=4212, warm=False,
            last_seen_at=self.now - timedelta(seconds=190),
        )  # fmt: skip

    def failures(self, operators: Iterable[c.Operator]) -> None:
        """What jobs reported as failing, and what a worker found."""
        states = ("waiting", "not_reproduced", "withdrawn", "unchecked")
        for operator, state in zip(operators, states, strict=False):
            made = c.Implementation.objects.filter(operator=operator).order_by("pk").first()
            assert made is not None
            said = {"where": "run", "error": "KernelFailed", "message": "the kernel failed: error code 7"}
            t.FailureReport.objects.create(
                implementation=made, organisation=self.organisation, last_at=self.now, count=2, **said
            )
            ended = {} if state == "waiting" else {"finished_at": self.now}
            t.Recheck.objects.create(
                implementation=made, target=self.target, asked_at=self.now, state=state, **ended
            )

    def environments(self) -> None:
        """Declared versions, a live worker with a newer TVM, and what came of declaring another one."""
        versions = {"eager": {"torch": "2.13.0"}, "onnxruntime": {"onnxruntime": "1.31.1"}}
        versions |= {"onednn": {"torch": "2.13.0"}, "openblas": {"numpy": "2.4.6"}}
        versions |= {"tvm": {"apache-tvm": "0.27.0.post1"}}
        for route, found in versions.items():
            c.DeclaredEnvironment.objects.get_or_create(
                target=self.target, route=route, defaults={"environment": register_environment(found)}
            )
        newer = {"available": True, "reason": "", "versions": {"apache-tvm": "0.28.0"}}
        t.Worker.objects.create(
            target=self.target, name=f"worker-3@canary{self.mark}", host="canary", pid=911, warm=True,
            tier="T2", routes={"eager": {"available": True, "versions": versions["eager"]}, "tvm": newer},
            last_seen_at=self.now - timedelta(seconds=2),
        )  # fmt: skip
        run = t.Revalidation.objects.create(
            target=self.target, route="tvm", asked_by="admin", finished_at=self.now,
            before=register_environment({"apache-tvm": "0.26.0"}),
            after=register_environment(versions["tvm"]),
        )  # fmt: skip
        t.Revalidation.objects.filter(pk=run.pk).update(asked_at=self.now - timedelta(minutes=7))
        verdicts = ["failed", "worse", "better", "better", "same", "same", "restored"]
        explorations = t.Exploration.objects.filter(state="done").order_by("pk")
        bests = c.Best.objects.filter(route="tvm").select_related("implementation")
        for verdict, exploration in zip(verdicts, [*explorations] * 4, strict=False):
            best = bests.filter(operator=exploration.operator_id).first()
            if best is None or run.bests.filter(exploration=exploration).exists():
                continue
            change = {"worse": 0.83, "better": 1.21, "failed": 0.0}.get(verdict, 1.0)
            t.Revalidated.objects.create(
                revalidation=run, exploration=exploration, route="tvm", verdict=verdict,
                implementation=best.implementation, ratio_before=best.ratio_to_default,
                ratio_low_before=best.ratio_low, ratio_high_before=best.ratio_high,
                ratio_after=best.ratio_to_default * change or None,
                detail="crashed: signal 11 after 0.4 s" if verdict == "failed" else best.label,
            )  # fmt: skip
        seen = c.Implementation.objects.filter(operator=explorations[0].operator_id, route="mkl")
        withdraw(seen, "reads one line past its input")


def resnet_operators(factory: Factory, count: int = 40) -> list[c.Operator]:
    """Operators with the names and shapes of a convolutional network and a transformer."""
    shapes = [(64, 56), (128, 28), (256, 14), (512, 7), (1024, 14), (2048, 7), (96, 112), (192, 56)]
    made = []
    for channels, size in shapes:
        made.append(("Conv", f"Conv 1×{channels}×{size}×{size}, {channels}×{channels}×3×3"))
        made.append(("Conv", f"Conv 1×{channels}×{size}×{size}, {channels * 2}×{channels}×1×1"))
        made.append(("Relu", f"Relu 1×{channels}×{size}×{size}"))
        made.append(("BatchNormalization", f"BatchNormalization 1×{channels}×{size}×{size}"))
        made.append(("Add", f"Add 1×{channels}×{size}×{size}"))
    made += [("MatMul", f"MatMul 8×{n}×64, 64×{n}") for n in (128, 256, 512, 1024)]
    made += [("Softmax", f"Softmax 8×{n}×{n}") for n in (128, 256, 512)]
    made += [("LayerNormalization", f"LayerNormalization {n}×768") for n in (128, 512)]
    return [factory.operator(kind, f"{text} float32") for kind, text in made[:count]]


def _given_and_shared(factory: Factory) -> None:
    """An upload at work and a refused one, and what two organisations had of the workers."""
    given = {"organisation": factory.organisation, "size_bytes": 98_304_117}
    Upload.objects.create(
        name="resnet50-int8", state="running", doing="asking for its operators: 256", operators_done=256,
        operators_total=1024, **given,
    )  # fmt: skip
    said = "The model has 60000 nodes; at most 50000 are accepted."
    Upload.objects.create(name="everything-merged", state="refused", reason=said, **given)
    others = c.Organisation.objects.exclude(pk=factory.organisation.pk)[:1]
    for organisation, seconds in ((factory.organisation, 212.0), *((one, 65.0) for one in others)):
        had = {"recent_s": seconds, "spent_s": 40 * seconds, "at": factory.now}
        t.WorkerShare.objects.get_or_create(organisation=organisation, defaults=had)


def full_catalogue(seed: int = 7, hours: int = 24 * 8, mark: str = "") -> Factory:
    """Everything at once: what the screenshots show. With a ``mark``, beside what is there already."""
    return kept((seed, hours, mark), lambda: _full_catalogue(seed, hours, mark), workers_live_on)


def workers_live_on(age: timedelta) -> None:
    """Those just seen are alive for some seconds only."""
    t.Worker.objects.update(last_seen_at=F("last_seen_at") + age)


def _full_catalogue(seed: int, hours: int, mark: str) -> Factory:
    factory = Factory(seed, mark=mark)
    operators = resnet_operators(factory, 49)
    known, rest = operators[:34], operators[34:]
    for i, operator in enumerate(known):
        # A few are won by hand-written kernels, so that every method is seen.
        extra = (("cpp", "manual", "fused bias, AVX2"),) if i % 7 == 2 else ()
        factory.implement(operator, ROUTES + extra)
        factory.miss(operator, "explored", calls=12)
    states = [
        ("done", 2),
        ("done", 1),
        ("done", 2),
        ("running", 2),
        ("queued", 2),
        ("queued", 2),
        ("paused", 2),
    ]
    for operator, (state, stage) in zip(known, states, strict=False):
        more = (
            {"doing": "tvm: tuning, 41 of 64 trials", "lease_owner": "worker-1@node"}
            if state == "running"
            else {}
        )
        factory.trials(exploration := factory.explore(operator, state, stage, **more))
        if state == "done":
            keep_race(exploration, first_report(), stage=0)
            keep_race(exploration, contest_report())
    factory.miss(rest[0], "promoted")
    factory.explore(rest[0], "running", 0, doing="onnxruntime: timing", lease_owner="worker-1@node")
    for operator in rest[1:6]:
        factory.miss(operator, "promoted")
        factory.explore(operator, "queued", 0, steps_done=0)
    factory.miss(rest[6], "postponed", "12 operators of more worth wait; this one saves about 3 µs a run")
    factory.miss(rest[7], "postponed", "12 operators of more worth wait; this one saves about 3 µs a run")
    factory.miss(rest[8], "discarded", "needs 41 GB of memory; the machine has 8 GB")
    factory.miss(rest[9], "unsupported", "No route can express Loop yet.")
    factory.miss(rest[10], "failed", "every candidate failed: 2 wrong results, 1 crash")
    dead = "worker-1@node was lost 3 times while it built tvm: unrolled ×64"
    factory.trials(factory.explore(rest[10], "dead", 1, error=dead, tries=3))
    for operator in rest[11:]:
        factory.miss(operator, "waiting")
    factory.job("nightly-train", known[:20])
    factory.job("resnet-serving", known[5:30])
    factory.model("ResNet-50 (sample)", operators[:42], {"Shape of a dynamic value": 3})
    bert = factory.model("bert-base", operators[24:])
    factory.structure(bert)
    factory.traffic(known, hours)
    factory.workers()
    factory.environments()
    factory.failures(known[:4])
    sizes(factory.now, mark=mark)
    tenants(factory, known)
    bert.refresh_from_db()
    factory.run(bert)
    refresh_rollups()
    _given_and_shared(factory)
    return factory


GPU_ROUTES = (
    ("eager", "library", "torch.nn.functional, CUDA"), ("cublaslt", "library", "algorithm 21, tiles 128×256"),
    ("triton", "compiler", "blocks 128×128×64, 4 stages"), ("cuda", "manual", "two rows a block"),
)  # fmt: skip


def on_a_gpu(factory: Factory, operators: Sequence[c.Operator]) -> Factory:
    """A GPU beside the processor: bests of these operators there, and a worker of it."""
    there = copy(factory)
    there.target = register_target(GPU)
    there.setting = register_setting(identity.Setting())
    for operator in operators:
        there.implement(operator, GPU_ROUTES)
    seen = {"sm_mhz": 1755, "memory_mhz": 2619, "temperature_c": 54, "slowed": ["power cap"]}
    t.Worker.objects.create(
        target=there.target, name=f"worker-1@gpu{factory.mark}", host="gpu", pid=4213, warm=True, tier="T2",
        routes={route: {"available": True, "versions": {"torch": "2.11.0"}} for route, *_ in GPU_ROUTES},
        device="cuda:0", device_memory_bytes=85520809984,
        device_state={**seen, "used_bytes": 5 << 30, "total_bytes": 85520809984},
        doing="triton: timing MatMul 4096×4096", last_seen_at=factory.now - timedelta(seconds=2),
    )  # fmt: skip
    refresh_rollups()
    return there


def tenants(factory: Factory, known: list[c.Operator]) -> None:
    """A second organisation with somebody in it, what it asked for, and what people did."""
    other = c.Organisation.objects.create(name=f"Acme{factory.mark}")
    user, new = User.objects.get_or_create(username=f"acme{factory.mark}")
    if new:
        user.set_password(user.username)
        user.save()
    c.Membership.objects.create(user=user, organisation=other, role=c.Role.ADMIN)
    factory.job("acme-serving", known[10:24], other)
    c.Model.objects.filter(name=f"bert-base{factory.mark}").update(organisation=other)
    for action, subject in (
        ("exploration.priority", "Conv 1×64×56×56: urgent"),
        ("queue.pause", "cpu.zen3"),
        ("queue.resume", "cpu.zen3"),
        ("key.create", "nightly"),
    ):
        c.AuditEntry.objects.create(
            user=user, actor=user.username, organisation=other, action=action, subject=subject,
            address="192.0.2.7",
        )  # fmt: skip


def _said_by_clients(hits: int) -> dict[str, int]:
    """What a job's clients may say where so many hits were theirs or the service's."""
    along = hits // 4
    return {
        "memory_hits": hits // 2, "machine_hits": hits // 5, "unasked_misses": hits // 16,
        "prefetched": along, "prefetched_used": along * 3 // 4, "prefetch_requests": along // 9,
        "prefetched_bytes": along * 3100, "prefetched_used_bytes": along * 3 // 4 * 3100,
    }  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
