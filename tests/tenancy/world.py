"""Two tenants and the host: what the first owns bears an unmistakable mark; the second must never meet it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from catalog import models as c
from catalog.people import audit
from catalog.people import members as people
from catalog.people.keys import SCOPES, create_api_key
from catalog.registry import default_organisation
from catalog.rollups.rollups import refresh_rollups
from catalog.selectors.jobs import CACHE_COUNTS
from tests.dashboard.factory import Factory, full_catalogue
from tests.dashboard.kernels import SUBMISSION
from tuning import models as t
from tuning.explore.race.report import Entry, RaceReport
from tuning.failures.grouping import note_failure
from tuning.kernels import services as kernels
from tuning.kernels.models import KernelVersion, VersionState

MARK = "zanzibar"
"""In every text that the first tenant owns. Looked for in whatever another one is answered."""

COUNT = 7_654_321
"""A number that shows up nowhere else: how often the first tenant asked."""


@dataclass
class Tenant:
    """An organisation with a user of each role, and an API key with every scope; its admin answers for it."""

    organisation: c.Organisation
    users: dict[str, User]
    key: str = ""
    keys: dict[str, str] = field(default_factory=dict)  # scope → the text of a key with this scope alone


@dataclass
class World:
    """Everything that is there. ``rows`` are the first tenant's own, by what they are."""

    factory: Factory
    host: Tenant
    other: Tenant
    stranger: User  # logs in and belongs to no organisation
    owner: Tenant | None = None
    rows: dict[str, Any] = field(default_factory=dict)


def tenant(organisation: c.Organisation, name: str) -> Tenant:
    """Users ``<name>-viewer`` … ``<name>-admin``, and keys."""
    users = {}
    for role in c.Role.values:
        users[role] = User.objects.create(username=f"{name}-{role}", email=f"{role}@{name}.example")
        c.Membership.objects.create(user=users[role], organisation=organisation, role=role)
    _, key = create_api_key(organisation, f"{name} all", SCOPES, user=users["admin"])
    keys = {
        scope: create_api_key(organisation, f"{name} {scope}", [scope], user=users["admin"])[1]
        for scope in SCOPES
    }
    return Tenant(organisation, users, key, keys)


def without_the_first() -> World:
    """The host with the shared catalogue, and the second tenant with a job, a model and lookups."""
    factory = full_catalogue(hours=3)
    host = tenant(default_organisation(), "host")
    other = tenant(c.Organisation.objects.create(name="bystanders"), "other")
    world = World(factory, host, other, User.objects.create(username="stranger"))
    known = list(c.Operator.objects.order_by("pk")[:4])
    factory.organisation = other.organisation
    factory.job("their-job", known)
    factory.model("their-model", known)
    factory.traffic(known, 2)
    factory.organisation = host.organisation
    refresh_rollups()
    return world


def plant(world: World) -> World:
    """The first tenant arrives, with one row of everything that an organisation can own."""
    organisation = c.Organisation.objects.create(name=f"{MARK} works")
    owner = world.owner = tenant(organisation, f"{MARK}-own")
    rows = world.rows
    rows["organisation"] = organisation
    rows["membership"] = organisation.memberships.get(role="viewer")
    rows["invitation"], rows["token"] = people.invite(organisation, "viewer", email=f"{MARK}@example.org")
    rows["key"] = organisation.api_keys.order_by("pk").first()
    audit.record(f"{MARK}.done", subject=MARK, user=owner.users["admin"], organisation=organisation)
    operator = rows["operator"] = c.Operator.objects.order_by("pk")[0]
    _traffic(world, operator)
    _private(world, operator)
    _kernel(world)
    from tests.tenancy import planting

    planting.plant(world)
    refresh_rollups()
    return world


def _traffic(world: World, operator: c.Operator) -> None:
    organisation = world.rows["organisation"]
    now = timezone.now()
    job = world.rows["job"] = c.Job.objects.create(organisation=organisation, name=f"{MARK} job")
    c.JobOperator.objects.create(job=job, operator=operator, hits=COUNT, misses=COUNT)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    c.JobCacheDay.objects.create(job=job, start=day, **dict.fromkeys(CACHE_COUNTS, COUNT))
    hour = now.replace(minute=0, second=0, microsecond=0)
    c.LookupTally.objects.create(
        hour=hour, operator=operator, organisation=organisation, hits=COUNT, misses=COUNT,
        hit_calls=COUNT, miss_calls=COUNT,
    )  # fmt: skip
    c.StaleHour.objects.get_or_create(hour=hour)
    c.Usage.objects.create(
        organisation=organisation, job=job, operator=operator, method="library", route="eager",
        implementation=c.Implementation.objects.filter(operator=operator).first(), median_us=10.0,
        default_us=20.0, calls=COUNT, served_at=now, node=MARK, segment="s", offset=0, item=0,
    )  # fmt: skip
    model = world.rows["model"] = c.Model.objects.create(
        organisation=organisation, name=f"{MARK} model", sha256="ab" * 32, form="onnx", calls=COUNT,
        target=world.factory.target, setting=world.factory.setting, unmapped={f"{MARK} op": 3},
    )  # fmt: skip
    c.ModelOperator.objects.create(model=model, operator=operator, calls=COUNT, example=f"/{MARK}/node")


def _private(world: World, operator: c.Operator) -> None:
    """What was explored for this organisation alone."""
    organisation, factory = world.rows["organisation"], world.factory
    scope = {"scope": f"org:{organisation.pk}", "owner": organisation}
    artifact = world.rows["artifact"] = c.Artifact.objects.create(
        sha256="cd" * 32,
        kind="recipe",
        manifest={"recipe": {"library": MARK}, "files": {"kernel.so": "ef" * 32}},
    )
    place = {"operator": operator, **factory.where, **scope}
    made = world.rows["implementation"] = c.Implementation.objects.create(
        **place, route="tvm", method="compiler", label=f"{MARK} label", candidate={MARK: 1},
        candidate_sha256="12" * 32, schedule=f"# {MARK} schedule", source=f"// {MARK} source",
        artifact=artifact, environment=factory.environment, revoked_reason="",
    )  # fmt: skip
    times = {"median_us": 0.123, "spread_us": 0.001, "default_us": 99.0, "ratio_to_default": 804.9,
             "ratio_low": 800.0, "ratio_high": 809.0}  # fmt: skip
    measurement = c.Measurement.objects.create(implementation=made, tier="T2", **times)
    c.Best.objects.create(
        **place, route="tvm", method="compiler", kind="recipe", implementation=made, measurement=measurement,
        label=f"{MARK} label", artifact_sha256=artifact.sha256, measured_at=timezone.now(), **times,
    )  # fmt: skip
    c.BestChange.objects.create(**place, after=made, reason=f"{MARK} reason")
    t.Recheck.objects.create(
        implementation=made, target=factory.target, asked_by=organisation, asked_at=timezone.now(),
        state="unchecked", detail=f"{MARK} detail", finished_at=timezone.now(),
    )  # fmt: skip
    shared = c.Implementation.objects.filter(operator=operator, scope=c.SHARED).order_by("pk").first()
    for failed in (made, shared):  # what it says of everybody's is its own too
        t.FailureReport.objects.create(
            implementation=failed, organisation=organisation, where="run", error=f"{MARK} error", count=COUNT,
            message=f"{MARK} message", job=f"{MARK} job", versions={MARK: "1"}, last_at=timezone.now(),
        )  # fmt: skip
    world.rows["miss"] = c.Miss.objects.create(**place, state="failed", reason=f"{MARK} miss", count=COUNT)
    for number, state in enumerate(("running", "done", "dead", "paused")):
        other = c.Operator.objects.order_by("pk")[number]
        row = t.Exploration.objects.create(
            operator=other, **factory.where, **scope, state=state, stage=1, capability="cpu.zen3",
            asked_at=timezone.now() - timedelta(minutes=1), error=f"{MARK} error", doing=f"{MARK} doing",
            reason=f"{MARK} reason", first_result_at=timezone.now(), worth=COUNT,
        )  # fmt: skip
        world.rows.setdefault("exploration", row)
        trial = t.Trial.objects.create(
            exploration=row, route="tvm", method="compiler", label=f"{MARK} trial", stage=1, status="crashed",
            detail=f"{MARK} detail", log_tail=f"{MARK} log", implementation=made, worker="worker-1@node",
        )  # fmt: skip
        world.rows["failure"] = note_failure(trial)
        t.TuningSlice.objects.create(
            exploration=row, route="tvm", family=f"{MARK} family", expected_gain=0.1, gained=0.9, seconds=9
        )
        t.Race.objects.create(
            exploration=row, stage=1, worker=f"{MARK} worker",
            report=RaceReport([Entry("tvm", f"{MARK} racer", skipped=f"{MARK} odds")]).to_json(),
        )  # fmt: skip
        run = t.Revalidation.objects.order_by("pk").first()
        t.Revalidated.objects.create(
            revalidation=run, exploration=row, route="tvm", implementation=made, ratio_before=804.9,
            ratio_low_before=800.0, ratio_high_before=809.0, verdict="worse", detail=f"{MARK} verdict",
        )  # fmt: skip


def _kernel(world: World) -> None:
    """One kernel that awaits a decision, so that nobody else may know of it."""
    assert world.owner is not None
    text = SUBMISSION.source + f"// {MARK} source\n"
    version = kernels.submit(
        kernels.Submission(
            name=f"{MARK}-kernel", source=text, pattern={"op": "Softmax"}, author=f"{MARK} author",
            licence="MIT", description=f"{MARK} description",
        ),
        user=world.owner.users["admin"], organisation=world.rows["organisation"],
    )  # fmt: skip
    KernelVersion.objects.filter(pk=version.pk).update(
        state=VersionState.AWAITING, state_reason=f"{MARK} state"
    )
    version.refresh_from_db()
    version.evaluations.update(detail=f"{MARK} evaluated", log_tail=f"{MARK} log")
    world.rows["version"], world.rows["kernel"] = version, version.kernel
