"""What a job's client pays: once for each lookup that was answered, and never for one that was not."""

from __future__ import annotations

import time

import pytest

from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Implementation, Usage
from dashboard.billing.models import JobSpending, LedgerEntry
from opatlas.client import ServiceError
from opatlas.client.cache import memory
from opatlas.client.service.wire import ServiceWire
from opatlas.errors import CallerError
from tests.dashboard.billing.conftest import price  # noqa: F401
from tests.opatlas.load.kernels import add_operator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def forgotten_rules():
    from dashboard.billing import rules

    rules.forget()
    yield
    rules.forget()


def charged():
    return [-entry.amount_micros for entry in LedgerEntry.objects.filter(kind="charge").order_by("pk")]


@pytest.fixture
def losing(monkeypatch):
    """``losing(2)``: so many answers of the service are lost on their way."""
    send, left = ServiceWire.send, [0]

    def lossy(self, verb, path, *rest):
        response = send(self, verb, path, *rest)
        if left[0] and path == "/api/v1/lookup":
            left[0] -= 1
            response.drain_conn()
            raise ServiceError("The service cannot be reached.")
        return response

    monkeypatch.setattr(ServiceWire, "send", lossy)
    return lambda times: left.__setitem__(0, times)


def test_an_answer_that_got_lost_is_paid_once(publish_add, job, price, losing, requests):  # noqa: F811
    publish_add()
    price(5.0)
    asker = job()
    losing(2)
    for _ in range(2):
        assert asker.lookup(add_operator()).source == "nobody"
        asker._door._quiet_until = 0.0
    assert asker.lookup(add_operator()).price["amount_micros"] == 5_000_000
    assert charged() == [5_000_000] and len(requests) == 3
    assert asker.lookup(add_operator()).price["amount_micros"] == 5_000_000
    assert charged() == [5_000_000, 5_000_000], "what was answered is over: this is another lookup"


def test_an_answer_that_got_lost_is_paid_once_whatever_was_told_meanwhile(
    publish_add,
    job,
    price,  # noqa: F811
    losing,
):
    publish_add()
    withdrawn = publish_add(7)
    price(5.0)
    asker = job()
    losing(1)
    assert asker.lookup(add_operator()).source == "nobody"
    asker._door._quiet_until = 0.0
    withdraw(Implementation.objects.filter(pk=withdrawn.implementation.pk), "wrong")
    revoked.forget()
    asker.lookup(add_operator(9))  # it is told what was revoked
    assert asker.lookup(add_operator()).price["amount_micros"] == 5_000_000
    assert charged() == [5_000_000]
    assert withdrawn.implementation.artifact.sha256 in asker.revoked


def test_what_was_refused_unheard_is_not_said_again(publish_add, job, price, losing):  # noqa: F811
    publish_add()
    price(5.0)
    rest, item = job().rest, {"key": add_operator().key}
    losing(1)
    with pytest.raises(ServiceError):
        rest.ask([item], known=["nonsense"])
    assert rest.ask([item]).answers[0].price["amount_micros"] == 5_000_000
    assert charged() == [5_000_000]


def test_a_connection_that_drops_is_paid_once(publish_add, job, price, monkeypatch):  # noqa: F811
    import urllib3

    publish_add()
    price(5.0)
    request, dropped = urllib3.PoolManager.request, []

    def drop_first(self, verb, url, **options):
        response = request(self, verb, url, **options)
        if url.endswith("/lookup") and not dropped:
            dropped.append(options["headers"]["Idempotency-Key"])
            raise urllib3.exceptions.ProtocolError("Connection aborted.")
        return response

    monkeypatch.setattr(urllib3.PoolManager, "request", drop_first)
    assert job().lookup(add_operator()).price["amount_micros"] == 5_000_000
    assert dropped and charged() == [5_000_000]


def test_what_is_to_be_paid_first_is_not_asked_for_in_a_loop(publish_add, job, price, requests, monkeypatch):  # noqa: F811
    publish_add()
    price(5.0, mode="withhold")
    asker = job()
    for _ in range(3):
        answer = asker.lookup(add_operator())
        assert not answer and answer.state == "payment_required"
        assert answer.price["amount_micros"] == 5_000_000
    other = job().lookup(add_operator())
    assert (other.state, other.price) == (answer.state, answer.price), "nor by another process"
    assert requests == ["/api/v1/lookup"]
    asker._memory.entries.clear()
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + memory.MISS_LIFE_S)
    asker.lookup(add_operator())
    assert len(requests) == 2 and charged() == []


# ---- agreements -----------------------------------------------------------------------------------------


def spent():
    return JobSpending.objects.get().spent_micros


def test_a_thousand_hits_are_one_lookup_and_one_report(publish_add, job, price, requests):  # noqa: F811
    made = publish_add()
    price(0.01)
    asker = job(job="run", spend_limit="20 EUR")
    first = asker.lookup(add_operator())
    assert first.price["amount_micros"] == 10_000 and first.price["agreement"]["per_use_micros"] == 10_000
    assert all(asker.lookup(add_operator()).source == "memory" for _ in range(1_000))
    assert requests == ["/api/v1/lookup"] and charged() == [10_000]
    asker.close()
    assert requests == ["/api/v1/lookup", "/api/v1/usage"]
    assert charged() == [10_000, 10_000_000] and spent() == 10_010_000
    used = {row.calls for row in Usage.objects.filter(implementation=made.implementation)}
    assert used == {1.0, 1_000.0} and Usage.objects.count() == 2
    assert asker.counts["memory"] == 1_000


def test_up_to_the_limit_and_not_beyond(publish_add, job, price, requests):  # noqa: F811
    publish_add()
    price(0.01)
    asker = job(job="run", spend_limit="5 EUR")
    answers = [asker.lookup(add_operator()) for _ in range(1_001)]
    assert sum(map(bool, answers)) == 500
    assert {(one.state, one.reason) for one in answers if not one} == {
        ("payment_required", "The job's spend limit of 5 EUR is used up.")
    }
    asker.close()
    assert requests == ["/api/v1/lookup", "/api/v1/usage"]
    assert charged() == [10_000, 4_990_000] and spent() == 5_000_000
    assert {row.calls for row in Usage.objects.all()} == {1.0, 499.0}, "what was not given is not reported"
    later = job(job="run", spend_limit="5 EUR")
    later._memory._store.clear()
    assert later.lookup(add_operator()).state == "payment_required" and spent() == 5_000_000


def test_processes_at_once_are_charged_no_more_than_the_limit(publish_add, job, price):  # noqa: F811
    publish_add()
    price(0.01)
    several = [job(job="run", spend_limit="1 EUR") for _ in range(3)]
    served = sum(bool(one.lookup(add_operator())) for one in several for _ in range(200))
    assert served > 100, "none knows of the others' yet"
    for one in several:
        one.close()
    assert spent() == sum(charged()) == 1_000_000


def test_jobs_and_clients_without_a_limit_find_nothing_of_it(publish_add, job, price, requests):  # noqa: F811
    publish_add()
    price(0.01)
    assert job(job="run", spend_limit="5 EUR").lookup(add_operator())
    assert job(job="run", spend_limit="5 EUR").lookup(add_operator()).source == "cache"
    for options in ({"job": "other", "spend_limit": "5 EUR"}, {"job": "run"}, {}):
        assert job(**options).lookup(add_operator()).source == "service"
    assert requests == ["/api/v1/lookup"] * 4


def test_at_another_price_it_is_looked_up_again(publish_add, job, price, requests):  # noqa: F811
    publish_add()
    price(0.01, tiers=[{"from_hit": 4, "per_hit_micros": 2_000}])
    asker = job(job="run", spend_limit="5 EUR")
    sources = [asker.lookup(add_operator()).source for _ in range(5)]
    assert sources == ["service", "memory", "memory", "service", "memory"]
    asker.close()
    assert sum(charged()) == 3 * 10_000 + 2 * 2_000


def test_what_a_killed_process_had_used_is_charged_by_the_next(publish_add, job, price):  # noqa: F811
    publish_add()
    price(0.01)
    killed = job(job="run", spend_limit="5 EUR")
    for _ in range(4):
        assert killed.lookup(add_operator())
    killed._write_uses()
    killed._reporter._owes = False  # it never comes to its end
    following = job(job="another")
    following._reporter.send_all(following.rest, 5.0)
    assert charged() == [10_000, 30_000]
    killed._reporter.send_all(killed.rest, 5.0)
    assert charged() == [10_000, 30_000]


def test_an_agreement_ends_also_offline(publish_add, job, price, monkeypatch):  # noqa: F811
    publish_add()
    price(0.01)
    assert job(job="run", spend_limit="5 EUR").lookup(add_operator())
    offline = job(job="run", spend_limit="5 EUR", offline=True)
    assert offline.lookup(add_operator()).source == "cache"
    now, wall = time.monotonic, time.time
    monkeypatch.setattr(time, "monotonic", lambda: now() + 400)
    monkeypatch.setattr(time, "time", lambda: wall() + 400)
    assert offline.lookup(add_operator()).source == "nobody"


def test_what_was_revoked_is_not_given_again(publish_add, job, price):  # noqa: F811
    made = publish_add()
    price(0.01)
    asker = job(job="run", spend_limit="5 EUR")
    assert asker.lookup(add_operator())
    withdraw(Implementation.objects.filter(pk=made.implementation.pk), "wrong")
    revoked.forget()
    asker.lookup(add_operator(7))
    assert not asker.lookup(add_operator())
    revoked.forget()


@pytest.mark.parametrize("limit", ["5", "EUR 5", "-1 EUR", "1.1234567 EUR", "5 euro", 5])
def test_what_is_no_limit_is_said_at_once(job, limit):
    with pytest.raises(CallerError, match="such as"):
        job(job="run", spend_limit=limit)


def test_a_limit_is_one_of_a_job(job):
    with pytest.raises(CallerError, match="name it"):
        job(spend_limit="5 EUR")
