"""What happens is told: once, to whoever watches it and may know."""

from datetime import timedelta
from importlib import import_module

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog.best.withdrawing import withdraw
from catalog.errors import RequestError
from catalog.models import BestChange, Membership, Operator, Organisation, StepFailure, Usage
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from catalog.viewing import viewer_of
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.find import cursors, sources
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Alert, Cursor, Notification, NotificationDelivery
from dashboard.notifications.write import subjects
from tuning.models import Exploration, Trial, Worker
from tuning.statistics.alarms import LatestTrials, alarms


def told(user):
    return list(
        Notification.objects.filter(user=user, shown=True).order_by("pk").values_list("text", flat=True)
    )


def test_a_new_best_is_told_once_however_often_it_is_gathered(world):
    world.watch()
    world.change(world.implementation("tvm", 1.4), world.implementation("halide", 2.1))
    for _ in range(3):
        gather()
    assert told(world.person) == [
        "MatMul 512 by 512, 512 by 512 float32: halide is now fastest, 2.1 times the default (PyTorch "
        "eager) and 50 per cent faster than tvm."
    ]
    row = Notification.objects.get()
    assert (
        row.path
        == f"/operators/{world.operator.key}/?at={world.factory.target.pk}-{world.factory.setting.pk}"
    )


def test_the_first_result_and_the_end_of_an_exploration_are_told(world):
    world.watch()
    row = world.explored("dead", reason="Gave up after 3 tries.")
    gather()
    assert [text.split(": ", 1)[1] for text in told(world.person)] == [
        "first result after 4 seconds: something to serve.",
        "exploration failed: Gave up after 3 tries.",
    ]
    assert Notification.objects.order_by("-pk")[0].path == f"/explorations/{row.pk}/"


def test_a_withdrawal_is_told_with_its_reason(world):
    world.watch(events=("withdrawn",))
    bests = world.factory.implement(world.operator)
    best = bests[0]
    row = best.implementation
    row.artifact.manifest["needs"] = []
    row.artifact.save()
    withdraw(type(row).objects.filter(pk=row.pk), "reads one line past its input")
    gather()
    (text,) = told(world.person)
    assert f"{row.route} was withdrawn, now " in text


def test_what_was_found_wrong_is_told(world):
    world.watch(events=("withdrawn",))
    world.implementation("cpp", failed_at=timezone.now(), failed_reason="wrong result")
    gather()
    assert "cpp failed, nothing is served now. Wrong result." in told(world.person)[0]


def test_the_first_hit_is_told_and_later_ones_are_counted(world):
    world.watch(channels=("page", "email"))
    world.hit(3)
    gather()
    world.hit(2)
    gather()
    gather()
    row = Notification.objects.get()
    assert row.count == 5
    assert "served to job train 5 times by halide, 2.1 times the default (" in row.text
    assert NotificationDelivery.objects.count() == 1  # one mail, at the first


def test_hits_of_a_digest_are_counted_anew_for_each_digest(world, monkeypatch):
    world.watch(digest="hourly")
    world.hit(2)
    gather()
    later = timezone.now() + timedelta(hours=2)
    monkeypatch.setattr("dashboard.notifications.find.notify.database_now", lambda: later)
    world.hit(4)
    gather()
    assert sorted(Notification.objects.values_list("count", flat=True)) == [2, 4]


def test_another_tenant_hears_nothing_of_jobs_and_private_entries(world):
    world.watch(world.person)
    world.watch(world.stranger)
    world.hit()
    scope = f"org:{world.home.pk}"
    private = world.implementation("cpp", 3.0, scope=scope, owner=world.home)
    world.change(None, private, scope=scope, owner=world.home)
    world.explored(scope=scope, owner=world.home)
    type(private).objects.filter(pk=private.pk).update(revoked_at=timezone.now(), revoked_reason="no")
    gather()
    assert len(told(world.person)) == 5
    assert told(world.stranger) == []
    assert not Notification.objects.filter(user=world.stranger).exists()


def test_the_shared_catalogue_is_told_to_everybody_who_watches(world):
    world.watch(world.person)
    world.watch(world.stranger)
    world.change(None, world.implementation())
    gather()
    assert len(told(world.person)) == len(told(world.stranger)) == 1


def test_who_left_an_organisation_hears_no_more_of_it(world):
    world.watch(world.person)
    Membership.objects.filter(user=world.person).delete()
    world.hit()
    gather()
    assert told(world.person) == []


def test_a_key_of_an_organisation_hears_what_it_could_read(world):
    world.watch(world.person)
    Membership.objects.filter(user=world.person).delete()
    create_api_key(world.home, "mine", ["lookup"], user=world.person)
    world.hit()
    gather()
    assert len(told(world.person)) == 1


def test_the_host_hears_of_every_tenant(world):
    host = Organisation.objects.create(name="the platform", host=True)
    keeper = world.member("keeper", host)
    world.watch(keeper)
    world.hit(job=world.job("a", world.other))
    gather()
    assert len(told(keeper)) == 1


def test_somebody_elses_job_cannot_be_watched(world):
    with pytest.raises(Exception, match="You have no job"):
        subjects.job(viewer_of(world.stranger), world.job().pk)


def test_a_job_is_told_of_its_hits_and_of_its_operators(world):
    job = world.factory.job("train", [world.operator])
    world.watch(about=subjects.job(viewer_of(world.person), job.pk))
    world.hit(job=job)
    world.hit(job=world.job("another"))
    world.change(None, world.implementation())
    other = world.factory.operator("Relu", "Relu 8 float32")
    world.change(None, world.implementation(operator=other))
    gather()
    assert [row.happening for row in Notification.objects.order_by("happening")] == ["best_changed", "hit"]
    assert set(Notification.objects.values_list("operator", flat=True)) == {world.operator.pk}


def test_a_model_is_told_of_its_operators(world):
    model = world.factory.model("net", [world.operator])
    world.watch(about=subjects.model(viewer_of(world.person), model.pk))
    world.change(None, world.implementation())
    world.change(None, world.implementation(operator=world.factory.operator("Relu", "Relu 8 float32")))
    gather()
    assert Notification.objects.get().operator == world.operator


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({}, True),
        ({"q": "matmul 512"}, True),
        ({"q": "512 relu"}, False),
        ({"op_type": "MatMul", "dtype": "float32"}, True),
        ({"dtype": "int8"}, False),
        ({"method": "compiler"}, True),
        ({"method": "library"}, False),
    ],
)
def test_a_filter_is_told_of_what_the_list_would_show(world, filters, passes):
    world.watch(about=subjects.operators_that(filters))
    world.change(None, world.implementation("halide"))
    gather()
    assert (len(told(world.person)) == 1) == passes


def test_a_filter_by_target_and_a_place_of_an_operator_hold(world):
    here, elsewhere = world.factory.target.key, "t1:" + "9" * 64
    type(world.factory.target).objects.create(
        key=elsewhere, kind="cpu", arch="zen5", capability="cpu.zen5", description={}
    )
    world.watch(about=subjects.operators_that({"target": here}))
    world.watch(about=subjects.operators_that({"target": elsewhere}))
    world.watch(about=subjects.operator(world.operator.key, elsewhere))
    world.watch(about=subjects.operator(world.operator.key, here, world.factory.setting.key))
    world.change(None, world.implementation())
    gather()
    assert Notification.objects.count() == 2


def test_a_person_with_two_subscriptions_to_it_is_told_once(world):
    world.watch(channels=("page", "email"))
    world.watch(
        about=subjects.operators_that({"op_type": "MatMul"}), channels=("page", "email"), digest="daily"
    )
    world.change(None, world.implementation())
    gather()
    assert len(told(world.person)) == 1
    assert NotificationDelivery.objects.get().digest == "at_once"


def test_what_is_older_than_the_subscription_is_not_told(world):
    world.change(None, world.implementation())
    row = world.watch()
    type(row).objects.filter(pk=row.pk).update(created_at=timezone.now())
    gather()
    assert told(world.person) == []


def test_events_that_nobody_wants_are_not_told(world):
    world.watch(events=("withdrawn",))
    world.hit()
    world.change(None, world.implementation())
    world.explored()
    gather()
    assert told(world.person) == []


def test_a_switched_off_account_is_told_nothing(world):
    world.watch()
    world.person.is_active = False
    world.person.save()
    world.change(None, world.implementation())
    gather()
    assert not Notification.objects.exists()


def test_without_a_wish_for_hits_the_cursor_moves_on_without_reading_them(world):
    world.watch(events=("best_changed",))
    world.hit(50)
    gather()
    last = Usage.objects.order_by("-pk")[0].pk
    assert Cursor.objects.get(name="hits").position == last
    with CaptureQueriesContext(connection) as queries:
        gather()
    assert not [q for q in queries if '"catalog_usage"."median_us"' in q["sql"]]


def test_queries_do_not_grow_with_events_or_subscriptions(world):
    people = [world.member(f"p{i}", world.home) for i in range(12)]
    operators = [world.factory.operator("Relu", f"Relu {i} float32") for i in range(12)]

    made = {operator.pk: world.implementation(operator=operator) for operator in operators}

    def measure(count):
        for operator in operators[:count]:
            world.change(None, made[operator.pk])
            world.hit(3, operator=operator)
        with CaptureQueriesContext(connection) as queries:
            gather()
        # A database takes so many values in one INSERT: those may be several.
        return len([one for one in queries if one["sql"].startswith("SELECT")])

    for operator in operators[:2]:
        world.watch(people[0], subjects.operator(operator.key))
    measure(1)
    few = measure(2)
    for person in people:
        for operator in operators:
            world.watch(person, subjects.operator(operator.key))
        world.watch(person, subjects.operators_that({"op_type": "Relu"}))
    many = measure(12)
    assert Notification.objects.count() > 12 * 12
    assert many <= few + 2  # filters are a kind of subscription more: they, and what they are about


def test_a_row_that_is_committed_late_is_told_and_counted_once(world):
    """On SQLite nobody commits late, so the number is left free and filled in afterwards; the same on
    PostgreSQL, with two real transactions, is in test_late_commits.py."""
    world.watch()
    first = world.hit()[0]
    gather()
    late = first.pk + 1
    world.hit(id=late + 1)
    gather()
    assert Notification.objects.get().count == 2
    world.hit(id=late)
    gather()
    gather()
    assert Notification.objects.get().count == 3


def test_gaps_are_given_up_in_the_end(world, monkeypatch):
    world.watch()
    monkeypatch.setattr(cursors, "GAP_S", -1.0)
    first = world.hit()[0]
    gather()
    world.hit(id=first.pk + 5)
    gather()
    gather()
    assert Cursor.objects.get(name="hits").gaps == []


def test_a_crash_while_gathering_repeats_and_loses_nothing(world, monkeypatch):
    world.watch(channels=("page", "email"))
    world.hit(3)
    world.change(None, world.implementation())
    with monkeypatch.context() as patched:
        patched.setattr(Cursor, "save", _killed)  # after the rows were written, before the cursor is
        gather()
    assert not Notification.objects.exists()
    gather()
    assert Notification.objects.count() == 2
    assert Notification.objects.get(happening="hit").count == 3
    assert NotificationDelivery.objects.count() == 2


def _killed(*args, **kwargs):
    raise RuntimeError("killed")


def test_one_source_that_fails_leaves_the_others_alone(world, monkeypatch):
    world.watch()
    world.hit()
    world.change(None, world.implementation())
    broken = [
        sources.EventSource(one.name, one.happening, _killed if one.name == "best_changes" else one.read)
        for one in sources.SOURCES
    ]
    monkeypatch.setattr("dashboard.notifications.find.gathering.SOURCES", broken)
    gather()
    assert Notification.objects.get().happening == "hit"


@pytest.fixture
def host(world):
    """Somebody of who runs the service."""
    return world.member("host", default_organisation())


def fallen_silent(world, minutes=2):
    """A worker that was stopped and said nothing: it was there, and its row says that it still is."""
    heard = timezone.now() - timedelta(minutes=minutes)
    return Worker.objects.create(
        name="w0@far", host="far", pid=1, target=world.factory.target, memory_bytes=1, last_seen_at=heard
    )


def seen():
    """The courier's round: rules are judged, and what became of it is told."""
    watch()
    gather()


def test_a_silence_of_a_targets_last_worker_is_told_once_to_who_runs_the_service(world, host):
    world.watch(host, subjects.service(viewer_of(host)), events=("silent",))
    worker = fallen_silent(world)
    for _ in range(3):
        seen()
    assert told(host) == [
        f"{world.factory.target.capability}: w0@far fell silent and there is no other, nothing waits yet."
    ]
    assert Notification.objects.get().path == f"/alerts/{Alert.objects.get().pk}/"
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=timezone.now())
    seen()
    Alert.objects.update(gone_at=F("gone_at") - timedelta(minutes=1))
    seen()
    assert told(host)[1] == f"Resolved: {told(host)[0]}"
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=timezone.now() - timedelta(minutes=1))
    seen()
    assert len(told(host)) == 3  # another silence


def test_a_silence_is_none_where_another_worker_serves_or_the_worker_said_goodbye(world, host):
    world.watch(host, subjects.service(viewer_of(host)), events=("silent",))
    worker = fallen_silent(world)
    other = Worker.objects.create(
        name="w1@far", host="far", pid=2, target=world.factory.target, memory_bytes=1,
        last_seen_at=timezone.now(),
    )  # fmt: skip
    seen()
    other.delete()
    Worker.objects.filter(pk=worker.pk).update(stopped_at=timezone.now())
    seen()
    assert told(host) == []


def test_a_tenant_cannot_watch_the_service_and_who_left_the_host_hears_no_more(world, host):
    tenants = world.member("tenants", Organisation.objects.create(name="Tenant"))
    with pytest.raises(RequestError, match="Only who runs the service"):
        subjects.service(viewer_of(tenants))
    world.watch(host, subjects.service(viewer_of(host)), events=("silent",))
    Membership.objects.filter(user=host).delete()
    fallen_silent(world)
    seen()
    assert told(host) == []


def test_an_operators_watcher_is_told_of_no_silence_and_the_services_of_nothing_else(world, host):
    with pytest.raises(RequestError, match="one or more of disturbed, failing, hits_falling"):
        world.watch(host, subjects.service(viewer_of(host)), events=("hit",))
    with pytest.raises(RequestError):
        world.watch(events=("silent",))


def test_a_courier_whose_clock_is_wrong_leaves_nothing_for_another_day(world, monkeypatch):
    """What it told leaves at once by whoever comes next; numbers that it passed over are still looked for."""
    now = timezone.now
    world.watch(channels=("email",))
    cursor = Cursor(name="other", position=5, gaps=[[1, 1, now().timestamp() + 60]])
    with monkeypatch.context() as patched:
        patched.setattr("django.utils.timezone.now", lambda: now() + timedelta(hours=26))
        world.change(None, world.implementation())
        gather()
        assert cursors.take(cursor, BestChange.objects.none(), 1) == [] and cursor.gaps
    assert NotificationDelivery.objects.get().due_at <= now() + timedelta(minutes=1)


def tried(world, status, count, operators=4, route="tvm", detail="no such intrinsic 17"):
    for number in range(count):
        name = f"Relu {number % operators} {route}"
        operator = Operator.objects.filter(summary=name).first() or world.factory.operator("Relu", name)
        row, _ = Exploration.objects.get_or_create(
            operator=operator, **world.factory.where, defaults={"asked_at": timezone.now()}
        )
        Trial.objects.create(
            exploration=row,
            route=route,
            method="compiler",
            stage=1,
            status=status,
            detail=detail,
            worker="w0",
        )


def test_a_route_that_fails_on_every_trial_is_told_once_to_who_runs_the_service(world, host):
    world.watch(host, subjects.service(viewer_of(host)), events=("failing",))
    tried(world, "build_failed", 7)
    tried(world, "build_failed", 30, operators=1, route="halide")  # that operator's affair
    tried(world, "ok", 1, route="xla")
    tried(world, "crashed", 20, route="xla")
    seen()
    assert told(host) == []
    tried(world, "build_failed", 1)
    seen()
    seen()
    where = world.factory.target.capability
    assert told(host) == [
        f"{where}: tvm failed on all of its last 8 trials of 4 operators: no such intrinsic #."
    ]
    tried(world, "slower", 1)  # mended
    assert alarms(LatestTrials()).failing == ()


def test_a_machine_too_disturbed_to_measure_on_is_told(world, host):
    world.watch(host, subjects.service(viewer_of(host)), events=("disturbed",))
    tried(world, "ok", 11)
    tried(world, "noisy", 10)
    seen()
    assert told(host) == []
    tried(world, "noisy", 1)
    seen()
    where = world.factory.target.capability
    assert told(host) == [
        f"{where}: 11 of the last 22 trials could not be timed, the machine is too disturbed."
    ]


@pytest.mark.parametrize("place", ["find.sources._change", "find.notify.text_of"])
def test_an_event_that_cannot_be_told_leaves_the_others_told(world, monkeypatch, place):
    """As an event is made of its row, and as its sentence is."""
    world.watch()
    for route in ("tvm", "halide", "eager"):
        world.change(None, world.implementation(route, 2.0))
    module, _, name = f"dashboard.notifications.{place}".rpartition(".")
    real = getattr(import_module(module), name)

    def breaks(*given):
        if "halide" in (getattr(getattr(given[0], "after", None), "route", ""), *_routes(given)):
            raise KeyError("ratio")
        return real(*given)

    monkeypatch.setattr(f"{module}.{name}", breaks)
    for _ in range(2):
        gather()
    assert ["halide" in text for text in told(world.person)] == [False, False]
    assert StepFailure.objects.filter(row=0).count() == 0 and StepFailure.objects.exists()


def _routes(given):
    return [one.get("route", "") for one in given if isinstance(one, dict)]
