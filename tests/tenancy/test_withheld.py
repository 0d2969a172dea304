"""What is withheld until it is paid shows on no page and at no address: every one of the service is asked, so
that a new one cannot be forgotten."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.utils import timezone

from catalog import models as c
from dashboard.billing import rules
from dashboard.billing.models import PriceRule, Purchase
from tests.dashboard.kernels import CODE, OBSERVED, SUBMISSION, approve, evaluated, person, submitted
from tests.tenancy import addresses
from tests.tenancy.examples import EXAMPLES
from tests.tenancy.test_matrix import browser, text_of
from tests.tenancy.world import Tenant, World
from tuning import models as t
from tuning.failures.grouping import note_failure
from tuning.kernels.models import KernelInspection, KernelTry, KernelVersion

pytestmark = pytest.mark.django_db
SECRET = "quagga"
"""Stands in everything that shows how something withheld was made."""


@pytest.fixture
def kept(world: World) -> Iterator[dict[str, Any]]:
    """Everybody's, at a price: what was compiled, a kernel that leads, and one that leads nowhere yet."""
    rows = dict(world.rows)
    operator, where = rows["operator"], world.factory.where
    rows["implementation"] = _made(world, operator, "tvm", "compiler", rank=0)
    rows["artifact"] = rows["implementation"].artifact
    leads, waits = (_kernel(world, operator, name) for name in ("leads", "waits"))
    _made(world, operator, "cpp", "manual", rank=1, kernel_version=leads.pk)
    shared = t.Exploration.objects.filter(operator=operator, scope=c.SHARED, **where).first()
    rows["exploration"] = shared or t.Exploration.objects.create(
        operator=operator, **where, state="done", stage=1, capability="cpu.zen3", asked_at=timezone.now()
    )
    candidate = {"source": waits.source, SECRET: 1}
    for route, method, given in (("tvm", "compiler", {SECRET: 1}), ("cpp", "manual", candidate)):
        trial = t.Trial.objects.create(
            exploration=rows["exploration"], route=route, method=method, label="tried", stage=1,
            status="crashed", candidate=given, detail=f"it does not compile\n  int {SECRET};",
            log_tail=f"int {SECRET};", worker="worker-1",
        )  # fmt: skip
        rows["failure"] = note_failure(trial)
    PriceRule.objects.create(
        name="all", currency="EUR", created_by="tests", from_at=timezone.now(), mode="withhold",
        per_hit_micros=20_000, charges_default=True,
    )  # fmt: skip
    rules.forget()
    rows["kernels"] = (leads, waits)
    rows["where"] = f"?target={world.factory.target.key}&setting={world.factory.setting.key}"
    yield rows
    rules.forget()


def _made(world: World, operator: Any, route: str, method: str, rank: int, **more: Any) -> Any:
    place = {"operator": operator, **world.factory.where}
    artifact = c.Artifact.objects.create(
        sha256=f"{7 + rank}b" * 32, kind="c-abi", manifest={SECRET: 1, "files": {f"{SECRET}.so": "ef" * 32}}
    )
    made = c.Implementation.objects.create(
        **place, route=route, method=method, label="at a price", candidate={SECRET: 1},
        candidate_sha256=f"{rank}" * 64, schedule=f"# {SECRET}", source=f"int {SECRET};", artifact=artifact,
        environment=world.factory.environment, **more,
    )  # fmt: skip
    c.MachineCode.objects.create(
        implementation=made, artifact_sha256=artifact.sha256, packed=zlib.compress(f"{SECRET}:".encode())
    )
    times = {"median_us": 0.1, "spread_us": 0.001, "default_us": 99.0, "ratio_to_default": 990.0,
             "ratio_low": 980.0, "ratio_high": 999.0}  # fmt: skip
    measurement = c.Measurement.objects.create(implementation=made, tier="T2", **times)
    c.Best.objects.filter(**place, scope=c.SHARED, route=route).delete()
    c.Best.objects.filter(**place, scope=c.SHARED, rank=rank).update(rank=90 + rank)
    c.Best.objects.create(
        **place, route=route, method=method, kind="c-abi", implementation=made, measurement=measurement,
        label="at a price", rank=rank, artifact_sha256=artifact.sha256, measured_at=timezone.now(), **times,
    )  # fmt: skip
    return made


def _kernel(world: World, operator: Any, name: str) -> KernelVersion:
    version = submitted(person("ada"), name=name, source=f"{SUBMISSION.source}int {SECRET}_{name};\n")
    evaluated(version, [operator], world.factory)
    version.evaluations.update(log_tail=f"int {SECRET};", detail=f"warning\nint {SECRET};")
    one = version.evaluations.get()
    more: dict[str, Any] = {"evaluation": one, "version": version, "worker": "worker-1"}
    KernelTry.objects.create(
        **more, number=3, fence=3, status="noisy", detail=f"warning\nint {SECRET};", tier="T2",
        started_at=timezone.now(),
    )  # fmt: skip
    KernelInspection.objects.create(
        **more, observed={**OBSERVED, "paths": [SECRET]}, code={**CODE, "imports": [SECRET]}, risks=[],
        assembly=f"{SECRET}:", provenance={"who": SECRET}, files={f"{SECRET}.so": "ab" * 32},
    )  # fmt: skip
    version.refresh_from_db()
    approve(version, user=person("grace", decides=True), reason="Read.")
    KernelVersion.objects.filter(pk=version.pk).update(
        pattern={"op": SECRET}, flags=[f"-D{SECRET}"], launch={SECRET: []}
    )
    return KernelVersion.objects.get(pk=version.pk)


def asked(kept: dict[str, Any], every: bool = True) -> Iterator[tuple[bool, str]]:
    """Whether it is the API's, and path: every address that can be read, about what is withheld; else those
    that name it, and its list."""
    leads, waits = kept["kernels"]
    for address in [*addresses.pages(), *addresses.api()]:
        if "GET" not in address.methods or address.name in ("logout", "schema"):
            continue
        if not (every or address.arguments or address.name == "trials/"):
            continue
        for version in (leads, waits) if "kernel" in address.name else (leads,):
            rows = {**kept, "version": version, "kernel": version.kernel}
            for arguments in EXAMPLES[address.name](rows) if address.arguments else [{}]:
                where = kept["where"] if address.name == "operators/{key}/best" else ""
                yield address.api, address.filled(arguments) + where


def shown_to(who: Tenant, paths: Iterable[tuple[bool, str]]) -> set[tuple[bool, str]]:
    """Where who looks reads of it, exports too."""
    client = browser(who.users["admin"])
    found = set()
    for api, path in paths:
        text = text_of(client.get(path, headers={"Authorization": f"Bearer {who.key}"} if api else {}))
        if not api and "export=csv" in text:
            text += text_of(client.get(f"{path}?export=csv"))
        if SECRET in text:
            found.add((api, path))
    return found


def test_nothing_withheld_is_shown_before_it_is_paid(world: World, kept: dict[str, Any]) -> None:
    assert shown_to(world.other, asked(kept)) == set()
    everything = shown_to(world.host, asked(kept, every=False))
    assert len(everything) >= 20, everything  # whoever runs the service: the walk meets all of it
    for made in c.Implementation.objects.filter(operator=kept["operator"], scope=c.SHARED):
        Purchase.objects.create(
            organisation=world.other.organisation, implementation=made, first_at=timezone.now()
        )
    still = {path for _, path in everything - shown_to(world.other, everything)}
    _, waits = kept["kernels"]
    assert f"/api/v1/kernels/versions/{waits.pk}" in still
    assert not [path for path in still if "kernel" not in path]
