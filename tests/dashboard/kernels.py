"""Submitted kernels in every state, for tests and pictures of their pages. Nothing here was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from catalog import models as c
from catalog.registry import default_organisation
from tests.dashboard.factory import Factory
from tuning.kernels import services
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import KernelEvaluation, KernelInspection, KernelTry, KernelVersion, VersionState
from tuning.kernels.states import move, record
from tuning.measure.observing.inspecting import Inspection

SOURCE = """\
#include <math.h>
#include "opatlas_operator.h"
#define D IN0_LAST1

/* Softmax over the last axis, one row after another. */
int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *threads, void *state)
{
    for (int64_t row = 0; row < IN0_SIZE / D; row++) {
        const float *x = (const float *)t[0].data + row * D;
        float *y = (float *)t[1].data + row * D;
        float most = x[0], sum = 0.0f;
        for (int64_t i = 1; i < D; i++) most = fmaxf(most, x[i]);
        for (int64_t i = 0; i < D; i++) sum += y[i] = expf(x[i] - most);
        for (int64_t i = 0; i < D; i++) y[i] /= sum;
    }
    return 0;
}
"""
FASTER = SOURCE.replace("y[i] /= sum;", "y[i] *= inverse;").replace(
    "        for (int64_t i = 0; i < D; i++) y[i] *=",
    "        const float inverse = 1.0f / sum;\n        for (int64_t i = 0; i < D; i++) y[i] *=",
)
OBSERVED = {
    "runs": 8, "calls": {"openat": 8, "mmap": 24, "munmap": 16}, "paths": ["/etc/hostname"], "signals": {},
    "executable": 0, "threads": 0, "processes": 0, "grown_bytes": 2 << 20, "failed": "",
}  # fmt: skip
CODE = {
    "tool": "objdump", "functions": 2, "left_out": 0, "instructions": 9, "notable": {"rdtsc": 1},
    "imports": ["clock_gettime", "expf", "fopen"], "constructors": 0, "data_bytes": 24, "code_bytes": 248,
}  # fmt: skip
ASSEMBLY = """\
opatlas_run:
    1130:\tsub    rsp,0x18
    1134:\tmov    edi,0x1
    113c:\tcall   1030 <clock_gettime@plt>
    1141:\trdtsc
    1143:\tret

local function at 0x1150:
    1150:\tvaddps ymm0,ymm0,YMMWORD PTR [rip+0x2fa9]        # 4020
    1154:\tret"""
PROVENANCE = {
    "source_sha256": "cd" * 32, "who": "default/softmax-rows v1", "versions": {"gcc": "12.2.0"},
    "flags": ["-O2", "-fPIC", "-O3", "-mavx2"], "built_at": "2026-01-02T03:04:05+00:00",
    "builder": {"distribution": "Debian GNU/Linux 12 (bookworm)", "libc": "glibc 2.36", "tier": "T2"},
}  # fmt: skip
SUBMISSION = services.Submission(
    name="softmax-rows",
    source=SOURCE,
    pattern={"op": "Softmax", "inputs": [{"dtype": "float32"}]},
    flags=("-O3", "-mavx2"),
    author="Ada Example",
    licence="MIT",
    description="Softmax over the last axis, a row at a time.",
)


def person(name: str, *, decides: bool = False, **more: Any) -> User:
    """A member of the host organisation: an operator, or an approver."""
    user, new = User.objects.get_or_create(username=name, defaults=more)
    if new:
        user.set_password(name)
        user.save()
    role = c.Role.APPROVER if decides else c.Role.OPERATOR
    c.Membership.objects.update_or_create(
        user=user, organisation=default_organisation(), defaults={"role": role}
    )
    return User.objects.get(pk=user.pk)  # permissions are cached on the object


def submitted(user: User, **changes: Any) -> KernelVersion:
    return services.submit(replace(SUBMISSION, **changes), user=user, organisation=default_organisation())


def evaluated(version: KernelVersion, operators: list[c.Operator], factory: Factory) -> KernelVersion:
    """As a worker would leave it: built, right, timed beside every other method, awaiting a decision."""
    move(version, (VersionState.SUBMITTED,), VersionState.BUILDING, who="worker-1")
    KernelEvaluation.objects.filter(version=version).delete()
    for index, operator in enumerate(operators):
        default_us, ratio = 610.0 / (index + 1), 1.9 - 0.5 * index
        KernelEvaluation.objects.create(
            version=version, operator=operator, target=factory.target, setting=factory.setting, state="done",
            status="ok", max_error=2.4e-7, tolerance=1e-4, median_us=default_us / ratio,
            default_us=default_us, ratio_to_default=ratio, ratio_low=ratio * 0.97, ratio_high=ratio * 1.03,
            incumbent_route="onednn", incumbent_label="packed weights", incumbent_us=default_us / 1.5,
            incumbent_ratio=1.5, incumbent_low=1.46, incumbent_high=1.54, build_s=0.41, tier="T2",
            log_tail="kernel.c: In function ‘opatlas_run’:\nkernel.c:12:9: note: loop vectorized\n",
            times=_times(default_us, ratio), worker="worker-1", finished_at=timezone.now(),
        )  # fmt: skip
    for one in version.evaluations.all():
        KernelTry.objects.create(
            evaluation=one, version=version, number=1, fence=1, status="noisy", worker="worker-1",
            detail="8 of 8 rounds were disturbed", tier="T2", started_at=timezone.now(),
        )  # fmt: skip
        KernelTry.objects.create(
            evaluation=one, version=version, number=2, fence=2, status="ok", median_us=one.median_us,
            ratio_to_default=one.ratio_to_default, ratio_low=one.ratio_low, ratio_high=one.ratio_high,
            worker="worker-1", tier="T2", started_at=timezone.now(),
        )  # fmt: skip
        seen = Inspection(OBSERVED, CODE, ASSEMBLY)
        KernelInspection.objects.create(
            evaluation=one, version=version, observed=OBSERVED, code=CODE, assembly=ASSEMBLY,
            risks=seen.risks, provenance=PROVENANCE, files={"kernel.so": "ab" * 32}, worker="worker-1",
        )  # fmt: skip
    move(version, (VersionState.BUILDING,), VersionState.AWAITING, who="worker-1")
    return version


def approve(version: KernelVersion, *, user: User, reason: str) -> KernelVersion:
    """By somebody who looked at everything there is."""
    return services.approve(version, user=user, reason=reason, looked_at=Dossier(version).digests)


def gallery(factory: Factory) -> KernelVersion:
    """One kernel in each state, and the version with the most to look at."""
    ada, grace = person("ada"), person("grace", decides=True)
    operators = list(c.Operator.objects.filter(op_type="Softmax")[:2])
    first = evaluated(submitted(ada), operators, factory)
    services.reject(first, user=grace, reason="Divides in the inner loop: multiply by the inverse.")
    second = evaluated(submitted(ada, source=FASTER), operators, factory)
    failed = submitted(ada, name="gelu-tanh", description="GELU by a polynomial.", pattern={"op": "Gelu"})
    reason = "kernel.c:9: error: ‘ROWZ’ undeclared (first use in this function)"
    move(failed, (VersionState.SUBMITTED,), VersionState.FAILED, who="worker-1", reason=reason)
    submitted(
        ada, name="layer-norm", description="Layer norm, Welford.", pattern={"op": "LayerNormalization"}
    )
    approved = evaluated(submitted(ada, name="softmax-avx2"), operators, factory)
    approve(approved, user=grace, reason="Faster than every library on 512 columns.")
    record(approved, "noted", who="worker-1", reason="It leads one operator.")
    return second


def _times(default_us: float, ratio: float) -> list[dict[str, Any]]:
    rows = (
        ("kernel", "manual", "cpp", "softmax-rows", ratio),
        ("incumbent", "library", "onednn", "packed weights", 1.5),
        ("best", "compiler", "tvm", "vectors of 8", 1.31),
        ("default", "library", "eager", "as called", 1.0),
    )
    made = [
        {"what": what, "method": method, "route": route, "label": label, "median_us": default_us / one,
         "ratio_to_default": one, "ratio_low": one * 0.98, "ratio_high": one * 1.02}
        for what, method, route, label, one in rows
    ]  # fmt: skip
    return sorted(made, key=lambda row: row["median_us"])
