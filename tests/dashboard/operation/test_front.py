"""What stands in front of Django answers as Django does, or not at all."""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog import models
from catalog.best import revoked, vouching
from catalog.best.withdrawing import withdraw
from catalog.lookup import recalls
from catalog.lookup.recalls import Recalls
from catalog.people.keys import create_api_key, revoke_api_key
from catalog.registry import register_target
from catalog.usage import journal
from catalog.usage.draining import drain_journal
from dashboard.billing import rules
from dashboard.conf import parse_rate
from dashboard.operation import front, limits
from opatlas.identity import Setting, Target, default_setting
from tests import by_day
from tests.catalog import making
from tests.catalog.conftest import place_of, put, setting, target  # noqa: F401
from tests.dashboard.billing.conftest import price  # noqa: F401
from tests.dashboard.operation.wire import Wire, environ_of, sent_of

# ruff: noqa: F811 - fixtures of other folders are imported by their names

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_state(configure: Any, tmp_path: Path) -> Iterator[None]:
    journal.close()
    revoked.forget()
    vouching.forget()
    rules.forget()
    limits._window.cache_clear()
    configure(home=tmp_path / "home", store=tmp_path / "store")
    yield
    rules.forget()
    limits._window.cache_clear()


@pytest.fixture
def wire(make_key: Any) -> Wire:
    return Wire(make_key("lookup"))


@pytest.fixture(params=["key", "here"])
def named(request: pytest.FixtureRequest, target: Any) -> str:
    """The target as it is named: by its key, or as the one whose worker was seen last (some time ago)."""
    if request.param == "key":
        return str(target.key)
    models.Target.objects.filter(pk=target.pk).update(served_until=timezone.now() - timedelta(minutes=1))
    return "here"


@pytest.fixture
def best_of(wire: Wire, named: str) -> Callable[..., Any]:
    """``best_of(64, job="run")``: asked through the front."""

    def ask(length: int, more: str = "", **changes: Any) -> Any:
        path = f"/api/v1/operators/{making.relu(length).key}/best"
        return wire.get(path, f"target={named}{more}", **changes)

    return ask


def lookup_of(target: Any, *lengths: int, **fields: Any) -> dict[str, Any]:
    return {
        "target": target.key,
        "operators": [{"key": making.relu(length).key} for length in lengths],
        **fields,
    }


def usages() -> int:
    drain_journal()
    return models.Usage.objects.count()


def served(answer: Any) -> int:
    """The implementation that it names."""
    found: int = answer.json()["best"]["implementation"]
    return found


def reads_bests(best_of: Callable[..., Any], length: int) -> bool:
    """Whether this hit is read from the catalogue; else it was remembered."""
    with CaptureQueriesContext(connection) as statements:
        assert best_of(length).status.startswith("200")
    return any("catalog_best" in one["sql"] for one in statements)


class TestTheSameAnswer:
    def test_the_second_time_without_django_and_metered_alike(self, wire, put, best_of):
        put(64, "eager", 1.0)
        cold, warm = best_of(64, "&job=run"), best_of(64, "&job=run")
        assert (cold.warm, warm.warm) == (False, True)
        assert warm.said == cold.said == best_of(64, "&job=run", front=False).said
        assert warm.headers["x-request-id"] == "the-very-same-id" and warm.headers["allow"]
        assert usages() == 3
        rows = models.Usage.objects.values("operator", "implementation", "calls", "job__name", "median_us")
        assert len({json.dumps(row) for row in rows}) == 1

    def test_whoever_asks_otherwise_is_served_from_the_same_memory(self, wire, put, best_of, target):
        for length in (64, 65):
            put(length, "eager", 1.0)
        wire.post(lookup_of(target, 64, 65))
        best_of(64)  # the guise of a GET
        assert best_of(65, "&job=another").warm, "its hit came by a lookup"
        named = {"operators": [{"key": making.relu(65).key, "calls": 7}], "job": "third"}
        assert wire.post({"target": target.key} | named).warm
        assert usages() == 5
        assert sorted(models.Usage.objects.values_list("calls", flat=True)) == [1.0, 1.0, 1.0, 1.0, 7.0]

    def test_a_hit_that_nobody_asked_for_yet_is_read_without_django(
        self, wire, put, best_of, target, django_assert_num_queries
    ):
        for length in (64, 65, 66, 67):
            put(length, "eager", 1.0)
        best_of(64), wire.post(lookup_of(target, 64))  # the guises, the key, the target
        with django_assert_num_queries(1):
            alone = best_of(65)
        with django_assert_num_queries(1):
            many = wire.post(lookup_of(target, 64, 66, 65, 67))
        assert alone.warm and many.warm and usages() == 7
        assert alone.said == best_of(65, front=False).said
        assert many.said == wire.post(lookup_of(target, 64, 66, 65, 67), front=False).said
        with django_assert_num_queries(0):
            assert best_of(66).warm, "it was learnt of that"

    def test_where_one_of_them_has_no_best_django_answers_and_asks_for_it(self, wire, put, target):
        for length in (64, 65):
            put(length, "eager", 1.0)
        wire.post(lookup_of(target, 64))
        answer = wire.post(lookup_of(target, 64, 65, 66))
        assert not answer.warm and [one["status"] for one in answer.json()["results"]][:2] == ["hit", "hit"]

    def test_by_graphs_whose_text_was_seen_before(self, wire, put, target):
        put(64, "eager", 1.0)
        asked = {"target": target.key, "operators": [{"graph": making.relu_json(64)}]}
        cold, warm = wire.post(asked), wire.post(asked | {"job": "another"})
        assert warm.warm and warm.said == cold.said

    def test_what_is_not_known_or_waits_is_asked_of_django(self, wire, put, best_of, target):
        put(64, "eager", 1.0, final=False)
        for _ in range(2):
            assert not wire.post(lookup_of(target, 64, 65)).warm
            assert not wire.post(lookup_of(target, 64, wait_s=0.01, wait_for="contest")).warm
        assert wire.post(lookup_of(target, 64, wait_s=5)).warm, "it has come as far as that"
        assert not wire.post(lookup_of(target, 64, 64)).warm, "merged, and counted once"

    @pytest.mark.parametrize("seed", by_day.first(2, range(4)))
    def test_over_random_catalogues(self, wire, put, target, organisation, price, monkeypatch, seed):
        """Random requests, each through the front and by Django alone, while bests come, go and change."""
        now = timezone.now()  # else `revoked_until` becomes another while the test runs
        monkeypatch.setattr(revoked, "timezone", SimpleNamespace(now=lambda: now))
        chance = random.Random(seed)
        asks = RandomAsks(chance, target)
        models.Target.objects.filter(pk=target.pk).update(served_until=now - timedelta(minutes=1))
        warm = 0
        for step in range(90):
            if step % 6 == 0:
                change(chance, put, organisation)
                drain_journal()  # what is asked next becomes another
                wire.later()
            if step == 60 and seed == 3:
                price(0.01, route="onednn")
                wire.later()
            document = asks.next()
            front, django = (wire.post(document, front=front) for front in (True, False))
            assert without_due(front) == without_due(django), document
            warm += front.warm
        assert 15 < warm < 90, "both ways were gone"
        assert usages() >= warm


def without_due(answer: Any) -> Any:
    """What is owed in all grows with each hit that is charged; two that are asked in turn are two."""
    if b'"due_micros"' not in answer.body:
        return answer.said
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status, headers, re.sub(rb'"due_micros":\d+', b"", answer.body)


class RandomAsks:
    """Lookups as jobs send them: some fields, some operators, most often ones that were asked for before."""

    def __init__(self, chance: random.Random, target: Any) -> None:
        self._chance, self._target = chance, target
        self._sent: list[dict[str, Any]] = []

    def next(self) -> dict[str, Any]:
        if self._sent and self._chance.random() < 0.6:
            return self._chance.choice(self._sent)
        self._sent.append(self._made())
        return self._sent[-1]

    def _made(self) -> dict[str, Any]:
        chance = self._chance
        lengths = chance.sample(range(1, 7), chance.randint(1, 3))
        made = lookup_of(self._target, *lengths, job=chance.choice(["", "run", "täglich"]))
        for item in made["operators"]:
            if chance.random() < 0.3:
                item["calls"] = chance.choice([1, 2.5, 1e6])
        if chance.random() < 0.5:
            made["target"] = chance.choice(["here", self._target.description])
        fields: dict[str, Any] = {
            "setting": chance.choice([None, {"threads": 1}, {"threads": self._target.description["cores"]}]),
            "include": chance.choice(
                [
                    *(["manifest"], ["related"], ["manifest", "related"], ["evidence"], []),
                    *(["next"], ["next"], ["next", "related"], ["next", "manifest"]),
                ]
            ),
            "accepts": chance.choice([{"kinds": ["recipe"]}, {"versions": {"torch": "2.13.0"}}, {}]),
            "known": [row.sha256 for row in models.Artifact.objects.order_by("?")[:2]],
            "revoked_since": chance.choice(["0", str(int(timezone.now().timestamp() * 1e6))]),
            "wait_s": 0.01,
            "wait_for": chance.choice(["first", "contest"]),
            "free_only": False,
        }
        made |= {name: value for name, value in fields.items() if chance.random() < 0.3}
        if "related" in made.get("include", ()):
            others = chance.sample(range(1, 9), 2)
            made["related"] = [{"key": making.relu(length).key} for length in others]
        return made


def change(chance: random.Random, put: Any, organisation: Any) -> None:
    """Something new is published, or something is withdrawn."""
    if chance.random() < 0.25 and (alive := list(models.Implementation.objects.filter(revoked_at=None))):
        withdraw(models.Implementation.objects.filter(pk=chance.choice(alive).pk), "for the test")
        revoked.forget()
        return
    private = {"scope": f"org:{organisation.pk}", "owner": organisation} if chance.random() < 0.3 else {}
    for length in range(1, 7):
        if chance.random() < 0.6:
            route = chance.choice(["eager", "onednn", "numpy"])
            needs = {"torch": chance.choice(["2.13.0", "2.12.0"])}
            label = chance.choice(["plain", "nullable", "naïve"])
            more = {"needs": needs, "label": label, "final": chance.random() < 0.5, **private}
            put(length, route, chance.uniform(0.5, 3.0), candidate={"n": chance.random()}, **more)


class TestTheSameQuestion:
    """However it is written, it is one entry: what was answered in one form is known in every other."""

    @pytest.fixture
    def cores(self, target) -> int:
        models.Target.objects.update(served_until=timezone.now() - timedelta(minutes=1))
        return int(target.description["cores"])

    def forms(self, target, cores: int) -> list[bytes]:
        key, item = target.key, {"key": making.relu(64).key}
        default = setting_of(target)
        usual = {"target": key, "operators": [item]}
        documents = [
            usual | {"target": "here"},
            usual | {"target": target.description},
            usual | {"setting": default.to_json()},
            usual | {"setting": default.key},
            usual | {"setting": {"threads": cores}, "target": "here"},
            usual | {"setting": None, "job": " ", "accepts": {}, "include": [], "known": [], "related": []},
            usual | {"wait_s": 0, "wait_for": "first", "free_only": False, "revoked_since": None},
            usual | {"operators": [item | {"calls": 1}]},
            usual | {"operators": [item | {"calls": 1.0}], "target": "here"},
            usual | {"operators": [{"graph": making.relu_json(64)}]},
            dict(reversed(usual.items())),
        ]
        spaced = json.dumps(usual, indent=3).encode()
        return [json.dumps(usual).encode(), spaced, *(json.dumps(one).encode() for one in documents)]

    def test_is_answered_by_what_was_made_once(self, wire, put, target, cores, django_assert_num_queries):
        put(64, "eager", 1.0)
        first, *others = self.forms(target, cores)
        cold, warm = wire.post(first), wire.post(first)
        assert (cold.warm, warm.warm) == (False, True)
        with django_assert_num_queries(0):
            answers = [wire.post(one) for one in others]
        assert [one.warm for one in answers] == [True] * len(others)
        assert {one.body for one in answers} == {cold.body}
        assert len(wire.front.memory._made) == 1
        assert usages() == len(others) + 2
        django = {wire.post(one, front=False).body for one in others}
        assert django == {cold.body}

    def test_is_answered_whichever_form_came_first(self, wire, put, target, cores):
        put(64, "eager", 1.0)
        for one in reversed(self.forms(target, cores)):
            wire.post(one)
        assert all(wire.post(one).warm for one in self.forms(target, cores))

    def test_of_a_get(self, wire, put, target, cores):
        put(64, "eager", 1.0)
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        queries = [
            f"target={name}{setting}{more}"
            for name in (target.key, "here")
            for setting in (
                "",
                f"&setting={setting_of(target).key}",
                f"&threads={cores}",
                "&threads=&setting=",
            )
            for more in ("", "&job=", "&kinds=&versions=")
        ]
        first = wire.get(path, queries[0])
        answers = [wire.get(path, query) for query in queries]
        assert [one.warm for one in answers] == [True] * len(queries)
        assert (
            {one.body for one in answers} == {first.body} == {wire.get(path, "target=here", front=False).body}
        )
        assert all(wire.get(path, query).quick for query in queries)

    def test_other_questions_are_others(self, wire, put, target, cores):
        put(64, "eager", 1.0)
        asked = lookup_of(target, 64)
        wire.post(asked), wire.post(asked)
        other = wire.post(asked | {"setting": {"threads": 1}})
        assert not other.warm and other.json()["results"][0]["status"] != "hit"
        assert wire.post(asked | {"operators": [asked["operators"][0] | {"calls": 2}]}).warm
        drain_journal()
        assert sorted(models.Usage.objects.values_list("calls", flat=True)) == [1.0, 1.0, 2.0]

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("&threads=0", "from 1 to 4096"),
            ("&threads=two", "threads=2"),
            ("&threads=-1", "threads=2"),
            ("&threads=4096", "ask for 1 to"),
            ("&threads=1&setting=s1:" + "0" * 64, "not by both"),
        ],
    )
    def test_threads_that_are_none(self, wire, put, target, query, said):
        put(64, "eager", 1.0)
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        for _ in range(2):
            answer = wire.get(path, f"target={target.key}{query}")
            assert answer.status.startswith("400") and said in answer.json()["error"]


def setting_of(target: Any) -> Setting:
    return default_setting(Target.from_json(target.description))


class TestHere:
    """``here`` is whatever this service's own worker is now."""

    @pytest.fixture
    def other(self, target) -> Any:
        return register_target(Target.from_json(target.description | {"arch": "zen4"}))

    def seen(self, target: Any, minutes: float) -> None:
        models.Target.objects.filter(pk=target.pk).update(
            served_until=timezone.now() + timedelta(minutes=minutes)
        )

    def told(self, answer: Any) -> str:
        return str(answer.json()["target"])

    def ask_both(self, wire) -> tuple[Any, Any]:
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        lookup = {"target": "here", "operators": [{"key": making.relu(64).key}]}
        return wire.get(path, "target=here"), wire.post(lookup)

    def test_is_another_from_the_look_on_that_sees_another_worker(self, wire, put, place_of, target, other):
        put(64, "eager", 1.0)
        self.seen(target, 1)
        for _ in range(3):
            assert {self.told(one) for one in self.ask_both(wire)} == {target.key}
        self.seen(other, 2)
        wire.later()
        for _ in range(3):
            answers = self.ask_both(wire)
            assert {self.told(one) for one in answers} == {other.key}
            assert not any(one.warm for one in answers), "nothing is known there"
        self.seen(target, 3)
        wire.later()
        for _ in range(2):
            answers = self.ask_both(wire)
            assert {self.told(one) for one in answers} == {target.key}
        assert all(one.warm for one in answers) and answers[0].quick

    def test_is_not_what_it_was_within_the_look_that_a_reply_was_made_in(self, wire, put, target, other):
        """A reply is kept over looks that find nothing changed: a heartbeat of another worker is enough."""
        put(64, "eager", 1.0)
        self.seen(target, 5), self.seen(other, 1)
        for _ in range(3):
            self.ask_both(wire)
        before = wire.front._recalls.changed
        self.seen(other, 6)
        wire.later()
        assert {self.told(one) for one in self.ask_both(wire)} == {other.key}
        assert wire.front._recalls.changed == before, "no recall told of it"

    def test_named_by_its_key_it_stays(self, wire, put, target, other):
        put(64, "eager", 1.0)
        self.seen(target, 5)
        asked = lookup_of(target, 64)
        wire.post(asked), wire.post(asked)
        self.seen(other, 6)
        wire.later()
        answer = wire.post(asked)
        assert answer.warm and self.told(answer) == target.key

    def test_is_nowhere_before_any_worker_was_seen(self, wire, put, target):
        put(64, "eager", 1.0)
        for _ in range(2):
            answers = self.ask_both(wire)
            assert all(one.status.startswith("404") for one in answers)
            assert all("No worker was ever here" in one.json()["error"] for one in answers)
        self.seen(target, 1)
        wire.later()
        assert all(one.status.startswith("200") for one in self.ask_both(wire))

    def test_of_two_that_were_seen_at_once_is_the_same_by_either_way(self, wire, put, target, other):
        models.Target.objects.update(served_until=timezone.now() + timedelta(minutes=1))
        put(64, "eager", 1.0)
        answers = [*self.ask_both(wire), *self.ask_both(wire)]
        assert len({self.told(one) for one in answers}) == 1 and answers[-1].warm


class TestChangesAreSeen:
    def test_a_new_best_with_the_next_look_and_the_old_one_until_then(self, wire, put, best_of):
        old = put(64, "eager", 1.0).implementation.pk
        assert [served(best_of(64)) for _ in range(2)] == [old, old]
        new = put(64, "onednn", 2.0).implementation.pk
        assert served(best_of(64)) == old, "within a look"
        wire.later(recalls.FRESH_S)
        assert served(best_of(64)) == new

    def test_only_what_is_concerned_is_forgotten(self, wire, put, best_of):
        for length in (64, 65):
            put(length, "eager", 1.0)
        assert [reads_bests(best_of, length) for length in (64, 65, 64, 65)] == [True, True, False, False]
        put(64, "onednn", 2.0)
        wire.later()
        assert [reads_bests(best_of, length) for length in (64, 65, 64, 65)] == [True, False, False, False]

    def test_a_revoked_one_and_that_it_is_told(self, wire, put, best_of):
        gone = put(64, "eager", 1.0).implementation
        assert [served(best_of(64)) for _ in range(2)] == [gone.pk] * 2
        withdraw(models.Implementation.objects.filter(pk=gone.pk), "wrong")
        wire.later()
        revoked.forget()  # half a second
        answer = best_of(64)
        assert answer.json()["status"] == "miss" and answer.json()["revoked"] == [gone.artifact.sha256]

    @pytest.mark.parametrize("how", ["update", "save", "delete", "sql"])
    def test_whoever_changes_a_best_by_whatever_way(self, wire, put, best_of, how):

        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        best = models.Best.objects.get()
        if how == "update":
            models.Best.objects.update(final=False)
        elif how == "save":
            best.final = False
            best.save(update_fields=["final"])
        elif how == "delete":
            best.delete()
        else:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE catalog_best SET label = 'x'")
        wire.later()
        assert reads_bests(best_of, 64)

    def test_a_change_that_is_committed_while_an_answer_is_made(self, wire, put, best_of, monkeypatch):
        """It is read, then changed, then looked for, then remembered: and not served."""
        from dashboard.operation import front

        put(64, "eager", 1.0)
        learn = front.WarmMemory.learn

        def late(memory, lesson, look):
            put(64, "onednn", 2.0)
            wire.later()
            memory._recalls.current()
            learn(memory, lesson, look)

        with monkeypatch.context() as patched:
            patched.setattr(front.WarmMemory, "learn", late)
            best_of(64)
        assert best_of(64).json()["best"]["route"] == "onednn"

    def test_a_change_that_is_committed_while_a_hit_is_read(self, wire, put, best_of, monkeypatch):
        """The same without Django: what was read before the change is not served after the next look."""
        from catalog.api.warm import memory

        for length in (64, 65):
            put(length, "eager", 1.0)
        best_of(65)
        find = memory.find_bests

        def early(*given):
            found = find(*given)
            put(64, "onednn", 2.0)
            wire.later()
            wire.front._recalls.current()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(memory, "find_bests", early)
            assert best_of(64).warm
        assert best_of(64).json()["best"]["route"] == "onednn"

    def test_a_backup_that_was_restored(self, wire, put, best_of):
        """Recalls jump back, and then pass where they were before anybody looked again."""
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        newest = models.Recall.objects.order_by("-pk").first()
        models.Recall.objects.filter(pk=newest.pk).update(mark=newest.mark + 1)  # the same number, made again
        wire.later()
        assert not best_of(64).warm, "another history: nothing holds"
        assert best_of(64).warm
        models.Recall.objects.all().delete()
        wire.later()
        assert not best_of(64).warm

    def test_more_changes_than_a_look_reads(self, wire, put, best_of, monkeypatch):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        monkeypatch.setattr(recalls, "MOST", 3)
        for length in range(1, 7):
            put(length, "eager", 1.0)
        wire.later()
        assert not best_of(64).warm

    def test_old_recalls_go_and_who_slept_over_them_remembers_nothing(
        self,
        wire,
        put,
        best_of,
        monkeypatch,
    ):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        monkeypatch.setattr(recalls, "KEPT", 2)
        models.Recall.objects.bulk_create([models.Recall(kind="key", number=0, mark=n) for n in range(9)])
        assert recalls.forget_old_recalls() > 0 and models.Recall.objects.count() == 2
        wire.later()
        assert not best_of(64).warm

    def test_a_worker_that_comes_and_goes(self, wire, put, best_of, target):
        put(64, "eager", 1.0)
        best_of(64)
        for minutes, is_served in ((1, True), (-1, False)):
            target.served_until = timezone.now() + timedelta(minutes=minutes)
            target.save(update_fields=["served_until"])
            wire.later()
            answer = best_of(64)
            assert answer.warm and answer.json()["served"] is is_served
            assert ("note" in answer.json()) is not is_served

    def test_without_the_database_nothing_is_served_by_it(self, wire, put, best_of, monkeypatch):
        from django.db import OperationalError

        put(64, "eager", 1.0)
        best_of(64), best_of(64)

        def down(self):
            raise OperationalError("gone")

        monkeypatch.setattr(recalls.Recalls, "_read", down)
        wire.later(0.3)
        assert best_of(64).warm, "not old yet"
        wire.later(1.0)
        assert not best_of(64).warm


class TestRepliesOutliveLooks:
    """A reply is made once while nothing changes that it depends on."""

    @pytest.fixture
    def made(self, monkeypatch) -> list[object]:
        """One for each reply that was made."""
        found: list[object] = []
        answer = front.WarmMemory.answer

        def counted(*given):
            found.append(answer(*given))
            return found[-1]

        monkeypatch.setattr(front.WarmMemory, "answer", counted)
        return found

    def test_while_nothing_changes(self, wire, put, best_of, made):
        put(64, "eager", 1.0)
        best_of(64)
        for _ in range(20):
            assert best_of(64).warm
            wire.later()
        assert len(made) == 1

    @pytest.mark.parametrize("what", ["operator", "served", "revoked", "price", "backup"])
    def test_whatever_changes_they_are_made_anew(self, wire, put, best_of, made, target, price, what):
        put(64, "eager", 1.0)
        gone = put(65, "eager", 1.0).implementation
        best_of(64)
        wire.later()  # PostgreSQL's second look may tell of both once more: their transaction has not ended
        best_of(64), best_of(64)
        before = len(made)
        wire.later()
        assert best_of(64).warm and len(made) == before
        if what == "operator":
            put(66, "eager", 1.0)
        elif what == "served":
            models.Target.objects.update(served_until=timezone.now() + timedelta(minutes=1))
        elif what == "revoked":
            withdraw(models.Implementation.objects.filter(pk=gone.pk), "wrong")
            revoked.forget()
        elif what == "price":
            price(0.01, mode="withhold", route="onednn")
        else:
            models.Recall.objects.update(mark=7)
        wire.later()
        answer = best_of(64)
        assert len(made) == before + (what != "backup"), "then not even the key is known"
        assert answer.said == best_of(64, front=False).said

    def test_with_a_price_anywhere_they_live_for_a_look(self, wire, put, best_of, made, price):
        put(64, "eager", 1.0)
        price(0.01, mode="withhold", route="onednn")
        best_of(64)
        for _ in range(3):
            assert best_of(64).warm and best_of(64).warm
            wire.later()
        assert len(made) == 3

    def test_what_a_clock_alone_changes_is_written_anew(self, wire, put, target, made):
        put(64, "eager", 1.0)
        asked = lookup_of(target, 64, revoked_since="0")
        wire.post(asked)
        for _ in range(3):
            assert wire.post(asked).warm
            wire.later()
        assert len(made) == 3

    def test_a_ticket_that_ends_ends_them(self, wire, put, best_of):
        from catalog.api.warm.tickets import LIFE_S

        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        later = time.monotonic() + LIFE_S
        wire.front._tickets._clock = lambda: later
        assert best_of(64).warm, "within the look"
        wire.later()
        assert not best_of(64).warm

    def test_a_worker_that_goes_in_between_two_looks(self, wire, put, best_of, target, monkeypatch):
        """And comes back before the next: what was said meanwhile does not outlive it."""
        put(64, "eager", 1.0)
        until = timezone.now() + timedelta(minutes=1)
        models.Target.objects.update(served_until=until)
        wire.later()
        best_of(64)
        monkeypatch.setattr("catalog.api.warm.memory.timezone", SimpleNamespace(now=lambda: until))
        best_of(64)  # made by a clock that says it has gone
        monkeypatch.undo()
        wire.later()
        assert best_of(64).json()["served"] is True


class TestWhatComesNext:
    @pytest.fixture
    def order(self, wire, put, target):
        """A job that asked for 64, then 65, 66 and 67; of the last there is no best."""
        for length in (64, 65, 66):
            put(length, "eager", 1.0)
        for length in (64, 65, 66):
            wire.post(lookup_of(target, length, job="earlier"), front=False)
        graph = {"target": target.key, "operators": [{"graph": making.relu_json(67)}], "job": "earlier"}
        wire.post(graph, front=False)
        drain_journal()
        wire.later()

    def test_is_answered_in_front_of_django(self, order, wire, target):
        asked = lookup_of(target, 64, include=["next"], job="now")
        cold, warm, django = wire.post(asked), wire.post(asked), wire.post(asked, front=False)
        assert (cold.warm, warm.warm) == (False, True)
        assert cold.said == warm.said == django.said
        assert [item["key"] for item in warm.json()["next"]] == [making.relu(n).key for n in (65, 66)]

    def test_with_manifests_only_where_all_of_it_is_known(self, order, wire, target, put):
        asked = lookup_of(target, 64, include=["next", "manifest"])
        assert not any(wire.post(asked).warm for _ in range(3)), "67 may be damaged, or not there"
        put(67, "eager", 1.0)
        wire.later()
        answers = [wire.post(asked) for _ in range(3)]
        assert [one.warm for one in answers] == [False, True, True]
        assert len({one.body for one in answers} | {wire.post(asked, front=False).body}) == 1

    def test_what_has_got_a_best_since(self, order, wire, target, put):
        asked = lookup_of(target, 64, include=["next"])
        wire.post(asked), wire.post(asked)
        put(67, "eager", 1.0)
        wire.later()
        answer = wire.post(asked)
        assert not answer.warm and len(answer.json()["next"]) == 3

    def test_what_is_asked_next_since(self, order, wire, target, put):
        """Learnt where usage is drained, and of no recall."""
        asked = lookup_of(target, 64, include=["next"], job="now")
        wire.post(asked), wire.post(asked)
        put(68, "eager", 1.0)
        for length in (64, 68):
            wire.post(lookup_of(target, length, job="another"), front=False)
        drain_journal()
        wire.later()
        answers = [wire.post(asked) for _ in range(2)]
        keys = {item["key"] for item in answers[0].json()["next"]}
        assert making.relu(68).key in keys and answers[0].said == answers[1].said

    def test_is_of_the_organisation_alone(self, order, wire, target, tenant):
        asked = lookup_of(target, 64, include=["next"])
        wire.post(asked), wire.post(asked)
        wire.key = create_api_key(tenant, "theirs", ["lookup"])[1]
        assert all("next" not in wire.post(asked).json() for _ in range(3))

    def test_asks_are_recorded_alike(self, order, wire, target):
        asked = lookup_of(target, 64, include=["next"], job="now")
        before = usages()
        assert [wire.post(asked).warm for _ in range(3)] == [False, True, True]
        assert usages() == before + 3, "what is sent along is not counted"
        assert models.Usage.objects.filter(job__name="now").values("operator").distinct().count() == 1


class TestRowsOfALook:
    """What Django reads of the key and the place for each lookup, it reads once in a look."""

    def misses(self, wire, target, number):
        """A lookup that no memory answers."""
        return wire.post(lookup_of(target, 64, job=f"run {number}", include=["evidence"]))

    def test_are_read_once(self, wire, put, target, django_assert_max_num_queries):
        put(64, "eager", 1.0)
        self.misses(wire, target, 0)
        with django_assert_max_num_queries(3) as queries:  # bests, and evidence
            assert self.misses(wire, target, 1).status.startswith("200")
        read = " ".join(query["sql"] for query in queries.captured_queries)
        assert "catalog_apikey" not in read and "catalog_setting" not in read

    def test_a_revoked_key_opens_nothing_from_the_next_look_on(self, wire, put, target):
        put(64, "eager", 1.0)
        self.misses(wire, target, 0)
        revoke_api_key(wire.key.split("_")[1])
        wire.later()
        for _ in range(3):
            assert self.misses(wire, target, 1).status.startswith("401")
        assert wire.post(lookup_of(target, 64)).status.startswith("401")

    def test_what_django_answered_with_an_old_row_teaches_no_ticket_that_stays(self, wire, put, target):
        put(64, "eager", 1.0)
        self.misses(wire, target, 0)
        revoke_api_key(wire.key.split("_")[1])
        assert self.misses(wire, target, 1).status.startswith("200"), "within the look"
        assert wire.post(lookup_of(target, 64)).status.startswith("200")
        wire.later()
        assert wire.post(lookup_of(target, 64)).status.startswith("401")

    def test_a_key_that_is_deleted_within_the_look_is_refused_and_not_a_fault(self, wire, put, target):
        missing = {"target": target.key, "operators": [{"graph": making.relu_json(65)}]}
        assert wire.post(missing).json()["results"][0]["status"] == "miss"
        models.ApiKey.objects.all().delete()
        answer = wire.post(missing)
        assert answer.status.startswith("401") and models.Miss.objects.get().count == 1
        wire.later()
        assert answer.said == wire.post(missing).said, "as after the look"

    def test_what_is_refused_is_read_each_time(self, wire, put, target, organisation):
        put(64, "eager", 1.0)
        good, wire.key = wire.key, "opk_unknown_key"
        assert self.misses(wire, target, 0).status.startswith("401")
        prefix = good.split("_")[1]
        models.ApiKey.objects.filter(prefix=prefix).update(prefix="unknown")
        wire.key = good.replace(prefix, "unknown")
        assert self.misses(wire, target, 1).status.startswith("200")

    def test_another_secret_of_the_same_key_is_none(self, wire, put, target):
        put(64, "eager", 1.0)
        self.misses(wire, target, 0)
        wire.key = wire.key[:-1] + ("a" if wire.key[-1] != "a" else "b")
        assert self.misses(wire, target, 1).status.startswith("401")

    def test_from_elsewhere_and_too_late_are_asked_each_time(
        self, wire, put, target, organisation, monkeypatch
    ):
        put(64, "eager", 1.0)
        soon = timezone.now() + timedelta(minutes=5)
        networks = ["192.0.2.0/24"]
        wire.key = create_api_key(organisation, "there", ["lookup"], addresses=networks, expires_at=soon)[1]
        asked = lookup_of(target, 64, include=["evidence"])
        assert wire.post(asked, REMOTE_ADDR="192.0.2.7").status.startswith("200")
        assert wire.post(asked).status.startswith("401")
        monkeypatch.setattr("django.utils.timezone.now", lambda: soon)
        monkeypatch.setattr(time, "time", soon.timestamp)
        assert wire.post(asked, REMOTE_ADDR="192.0.2.7").status.startswith("401")

    def test_its_use_is_noted_once(self, wire, put, target):
        put(64, "eager", 1.0)
        long_ago = timezone.now() - timedelta(hours=1)
        models.ApiKey.objects.update(last_used_at=long_ago)
        self.misses(wire, target, 0)
        assert models.ApiKey.objects.get().last_used_at > long_ago
        models.ApiKey.objects.update(last_used_at=long_ago)
        self.misses(wire, target, 1)
        assert models.ApiKey.objects.get().last_used_at == long_ago, "it was noted in this look"

    def test_other_endpoints_read_the_key_each_time(self, wire, put, target):
        put(64, "eager", 1.0)
        self.misses(wire, target, 0)
        assert wire.get("/api/v1/targets/").status.startswith("200")
        revoke_api_key(wire.key.split("_")[1])
        assert wire.get("/api/v1/targets/").status.startswith("401")

    def test_many_take_bounded_room(self, monkeypatch):
        from catalog.api.warm import rows

        monkeypatch.setattr(rows, "MOST", 10)
        seen = SimpleNamespace(current=lambda: 1)
        held = rows.WarmRows(seen)
        for number in range(100):
            assert held.found(number, lambda number=number: number + 1) == number + 1
            assert len(held._held.rows) <= 10

    def test_without_a_look_nothing_is_remembered(self):
        from catalog.api.warm.rows import WarmRows

        held, reads = WarmRows(SimpleNamespace(current=lambda: None)), []
        for number in range(3):
            held.found("key", lambda number=number: reads.append(number) or number)
        assert reads == [0, 1, 2]


class TestKeysAndLimits:
    def test_a_key_that_is_revoked(self, wire, put, best_of):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        revoke_api_key(wire.key.split("_")[1])
        wire.later()
        answer = best_of(64)
        assert answer.status.startswith("401") and answer.said == best_of(64, front=False).said

    @pytest.mark.parametrize(
        ("changed", "status"),
        [
            ({"scopes": ["models"]}, "403"),
            ({"expires_at": "now"}, "401"),
            ({"addresses": ["192.0.2.0/24"]}, "401"),
            ({"secret_sha256": "0" * 64}, "401"),
        ],
    )
    def test_a_key_that_opens_less_from_now_on(self, wire, put, best_of, changed, status):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        changed = {name: timezone.now() if value == "now" else value for name, value in changed.items()}
        models.ApiKey.objects.update(**changed)
        wire.later()
        assert best_of(64).status.startswith(status)

    def test_a_key_of_some_networks_is_one_only_there(self, wire, put, best_of, organisation):
        put(64, "eager", 1.0)
        wire.key = create_api_key(organisation, "there", ["lookup"], addresses=["192.0.2.0/24"])[1]
        there = {"REMOTE_ADDR": "192.0.2.7"}
        assert [best_of(64, **there).warm for _ in range(2)] == [False, True]
        assert best_of(64).status.startswith("401")
        assert best_of(64, **there).warm

    @pytest.mark.parametrize("key", ["", "opk_a_b", "Bearer", "opk_äöü_x"])
    def test_what_is_no_key(self, wire, put, best_of, key):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        wire.key = key
        answer = best_of(64)
        assert answer.status.startswith("401") and answer.said == best_of(64, front=False).said

    def test_its_use_is_noted_as_often_as_django_notes_it(self, wire, put, best_of):
        from catalog.api.warm.tickets import LIFE_S

        assert LIFE_S <= 60
        put(64, "eager", 1.0)
        best_of(64)
        later = time.monotonic() + LIFE_S
        wire.front._tickets._clock = lambda: later
        assert not best_of(64).warm

    def test_another_organisation_has_a_memory_of_its_own(self, wire, put, best_of, tenant):
        shared = put(64, "eager", 1.0).implementation.pk
        mine = wire.key
        theirs = create_api_key(tenant, "theirs", ["lookup"])[1]
        private = {"scope": f"org:{tenant.pk}", "owner": tenant}
        own = put(64, "onednn", 2.0, **private).implementation.pk
        seen = []
        for key in (theirs, mine, theirs, mine, theirs, mine):
            wire.key = key
            seen.append(served(best_of(64)))
        assert seen == [own, shared] * 3 and best_of(64).warm

    def test_a_rate_that_is_used_up_in_a_burst(self, wire, put, best_of, configure):
        put(64, "eager", 1.0)
        configure(rate_lookup=parse_rate("5/min"))
        answers = [best_of(64) for _ in range(8)]
        assert [answer.status[:3] for answer in answers] == ["200"] * 5 + ["429"] * 3
        assert [answer.warm for answer in answers] == [False] + [True] * 4 + [False] * 3
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert usages() == 5

    def test_a_rate_of_the_address_counts_each_once(self, wire, put, best_of, configure):
        put(64, "eager", 1.0)
        configure(rate_address=parse_rate("6/min"), rate_lookup=parse_rate("4/min"))
        assert [best_of(64).status[:3] for _ in range(6)] == ["200"] * 4 + ["429"] * 2
        refused = best_of(64)
        assert refused.status.startswith("429") and b"your address" in refused.body

    def test_all_addresses_of_one_sender_have_one_rate(self, wire, put, best_of, configure):
        put(64, "eager", 1.0)
        configure(rate_address=parse_rate("4/min"))
        answers = [best_of(64, REMOTE_ADDR=f"2001:db8::{number}") for number in range(1, 7)]
        assert [answer.status[:3] for answer in answers] == ["200"] * 4 + ["429"] * 2
        assert any(answer.warm for answer in answers[:4])
        assert best_of(64, REMOTE_ADDR="2001:db8:0:1::1").status[:3] == "200"

    def test_what_has_its_price(self, wire, put, best_of, price):
        put(64, "onednn", 2.0)
        put(65, "eager", 1.0)
        for length in (64, 65):
            best_of(length), best_of(length)
        price(0.01, mode="withhold", route="onednn")
        wire.later()
        answer = best_of(64)
        assert (answer.warm, answer.json()["status"]) == (False, "miss")
        assert best_of(65).warm, "no rule concerns it"


class TestTheQuickLane:
    """What is answered where the web server hands it over."""

    def test_the_third_time_and_as_django_says_it(self, wire, put, best_of):
        put(64, "eager", 1.0)
        answers = [best_of(64) for _ in range(3)]
        assert [one.quick for one in answers] == [False, False, True]
        assert answers[2].said == best_of(64, front=False).said
        assert usages() == 4

    def test_reads_nothing(self, wire, put, best_of, named, django_assert_num_queries):
        put(64, "eager", 1.0)
        for _ in range(2):
            best_of(64)
        path, query = f"/api/v1/operators/{making.relu(64).key}/best", f"target={named}"
        sent = sent_of(environ_of(wire.key, "GET", path, query))
        with django_assert_num_queries(0):
            assert best_of(64).quick
            wire.later(0.26)
            assert wire.front.quickly(sent) is None, "it is time to look: this request does, the plain way"
            assert best_of(64).quick, "and others need not wait for it"
            wire.later(0.15)
            assert wire.front.quickly(sent) is None, "nobody has looked for too long"

    def test_bodies_are_left_to_others_since_they_may_be_on_their_way(self, wire, put, target):
        put(64, "eager", 1.0)
        assert not any(wire.post(lookup_of(target, 64)).quick for _ in range(4))

    def test_a_new_best_with_the_next_look(self, wire, put, best_of):
        put(64, "eager", 1.0)
        for _ in range(3):
            first = best_of(64)
        put(64, "onednn", 2.0)
        assert served(best_of(64)) == served(first)
        wire.later()
        assert served(best_of(64)) != served(first)

    def test_a_revoked_key_from_the_next_look_on(self, wire, put, best_of):
        put(64, "eager", 1.0)
        assert [best_of(64).quick for _ in range(3)][2]
        revoke_api_key(wire.key.split("_")[1])
        wire.later()
        assert best_of(64).status.startswith("401")

    def test_a_rate_that_is_used_up_is_said_by_django(self, wire, put, best_of, configure):
        put(64, "eager", 1.0)
        configure(rate_lookup=parse_rate("4/min"))
        answers = [best_of(64) for _ in range(6)]
        assert [one.status[:3] for one in answers] == ["200"] * 4 + ["429"] * 2
        assert answers[3].quick and usages() == 4

    def test_what_brings_a_body_is_left_to_others(self, wire, put, best_of):
        put(64, "eager", 1.0)
        assert [best_of(64).quick for _ in range(3)][2]
        assert not best_of(64, CONTENT_LENGTH="1").quick

    def test_where_a_variable_is_named_like_what_a_request_has(self, monkeypatch, make_key, put, target):
        monkeypatch.setenv("HTTP_X_REQUEST_ID", "of-the-process")
        wire = Wire(make_key("lookup"))
        put(64, "eager", 1.0)
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        for _ in range(3):
            both = [
                wire.get(path, f"target={target.key}", front=front, HTTP_X_REQUEST_ID="of-the-process")
                for front in (True, False)
            ]
            assert both[0].said == both[1].said and not both[0].quick

    def test_a_variable_like_any_other_header_stands_in_nobodys_way(self, monkeypatch, make_key, put, target):
        monkeypatch.setenv("HTTP_PROXY", "http://proxy")
        wire = Wire(make_key("lookup"))
        put(64, "eager", 1.0)
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        assert [wire.get(path, f"target={target.key}").quick for _ in range(3)][2]
        assert not wire.get(path, f"target={target.key}", HTTP_PROXY="of the request").quick


class TestVariants:
    """Whatever is unusual: as Django answers, by whoever."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"HTTP_COOKIE": "sessionid=abc"},
            {"HTTP_IDEMPOTENCY_KEY": "abc"},
            {"HTTP_IDEMPOTENCY_KEY": ""},
            {"HTTP_ACCEPT": "text/html"},
            {"HTTP_ACCEPT": "application/json"},
            {"HTTP_HOST": "evil.example"},
            {"HTTP_HOST": None},
            {"HTTP_EXPECT": "100-continue"},
            {"HTTP_RANGE": "bytes=0-3"},
            {"HTTP_IF_NONE_MATCH": "*"},
            {"HTTP_X_HTTP_METHOD_OVERRIDE": "DELETE"},
            {"HTTP_X_FORWARDED_FOR": "192.0.2.1"},
            {"HTTP_X_FORWARDED_PROTO": "https"},
            {"HTTP_AUTHORIZATION": None},
            {"HTTP_AUTHORIZATION": "Basic abc"},
            {"HTTP_USER_AGENT": "anything"},
            {"REQUEST_METHOD": "HEAD"},
            {"REQUEST_METHOD": "DELETE"},
            {"REQUEST_METHOD": "OPTIONS"},
            {"SCRIPT_NAME": "/prefix"},
            {"CONTENT_TYPE": "text/plain; charset=utf-16"},
            {"CONTENT_LENGTH": "0"},
            {"wsgi.url_scheme": "https"},
            {"PATH": "+/"},
            {"PATH": "+\n"},
            {"PATH": "//"},
            {"QUERY": "&format=xml"},
            {"QUERY": "&job=%ff"},
            {"QUERY": "&job=a%00b"},
            {"QUERY": "&target=here"},
            {"QUERY": "&setting="},
            {"QUERY": "&kinds=recipe"},
            {"QUERY": "&kinds=nonsense"},
            {"QUERY": "&versions=torch==2.13.0"},
            {"QUERY": "&versions=torch==2.12.0"},
            {"QUERY": "&include=manifest"},
            {"QUERY": "&" + "&".join(f"a{n}=1" for n in range(1200))},
        ],
    )
    def test_of_a_get(self, wire, put, target, changes):
        put(64, "eager", 1.0)
        path = f"/api/v1/operators/{making.relu(64).key}/best"
        assert wire.get(path, f"target={target.key}").status.startswith("200")
        path = {"+/": path + "/", "+\n": path + "\n", "//": "/" + path}.get(changes.get("PATH"), path)
        query = f"target={target.key}" + changes.get("QUERY", "")
        changes = {name: value for name, value in changes.items() if name not in ("PATH", "QUERY")}
        for _ in range(3):  # whatever was learnt of the first, and made of it for the quick lane
            front, django = (wire.get(path, query, front=front, **changes) for front in (True, False))
            assert front.said == django.said

    @pytest.mark.parametrize(
        "changes",
        [
            {"CONTENT_TYPE": "text/plain"},
            {"CONTENT_TYPE": "application/json; charset=latin-1"},
            {"CONTENT_TYPE": "application/json; charset=utf-8"},
            {"CONTENT_TYPE": None},
            {"CONTENT_LENGTH": None},
            {"CONTENT_LENGTH": "7"},
            {"CONTENT_LENGTH": "x"},
            {"CONTENT_LENGTH": str(3 << 20)},
            {"CONTENT_LENGTH": str(9 << 20)},
            {"QUERY_STRING": "format=xml"},
            {"QUERY_STRING": "a=b"},
            {"PATH_INFO": "/api/v1/lookup/"},
            {"PATH_INFO": "/api/v1/Lookup"},
            {"HTTP_TRANSFER_ENCODING": "chunked"},
            {"HTTP_CONTENT_ENCODING": "gzip"},
            {"BODY": b"{"},
            {"BODY": b'{"target": "t1:", "operators": []}'},
            {"BODY": b"[" * 5000},
            {"BODY": b'{"a": NaN}'},
            {"BODY": b"\xff"},
        ],
    )
    def test_of_a_post(self, wire, put, target, changes):
        put(64, "eager", 1.0)
        usual = lookup_of(target, 64)
        wire.post(usual)
        changes = dict(changes)
        document = changes.pop("BODY", usual)
        for _ in range(2):
            front, django = (wire.post(document, front=front, **changes) for front in (True, False))
            assert front.said == django.said


class TestBounds:
    def test_a_journal_that_cannot_be_written(self, wire, put, best_of, configure, tmp_path):
        put(64, "eager", 1.0)
        best_of(64), best_of(64)
        assert usages() == 2
        nowhere = tmp_path / "file"
        nowhere.write_text("no folder")
        configure(home=nowhere)
        refused = best_of(64)
        assert refused.status.startswith("503") and not refused.warm
        assert refused.said == best_of(64, front=False).said
        configure(home=tmp_path / "home")
        assert best_of(64).warm and usages() == 3

    def test_many_keys_asked_for_once_each_take_bounded_room(self, make_key, put, target, place_of):
        wire = Wire(make_key("lookup"), warm_bytes=256 << 10)
        lengths = range(1, 400)
        for length in lengths:
            put(length, "eager", 1.0) if length < 120 else place_of(length)
        for length in range(1, 120):
            wire.post(lookup_of(target, length))
            wire.post(lookup_of(target, 1))
        memory = wire.front.memory
        assert 10 < len(memory) < 100
        assert wire.post(lookup_of(target, 1)).warm, "what is asked for again stays"
        assert len(wire.front._asks) < 120 and len(wire.front._replies) < 120

    def test_replies_to_long_headers_are_not_kept(self, make_key, put, target):
        """Each would be kept with its headers: 200 kB of them with each reply."""
        wire = Wire(make_key("lookup"), warm_bytes=1 << 20)
        put(64, "eager", 1.0)
        path, query = f"/api/v1/operators/{making.relu(64).key}/best", f"target={target.key}"
        kept = weighed(wire)
        for number in range(20):
            accept = f"application/json;q=0.{number}," + "x/y," * 50_000
            for _ in range(2):
                answer = wire.get(path, query, HTTP_ACCEPT=accept)
                assert answer.status.startswith("200") and not answer.warm
        assert weighed(wire) - kept < 200_000

    @pytest.mark.parametrize("how", ["headers", "accepts", "texts"])
    def test_all_that_is_kept_of_replies_counts(self, make_key, put, target, how):
        """Whatever is written in ever other ways: what lies in memory is within what it may take."""
        room = 256 << 10
        wire = Wire(make_key("lookup"), warm_bytes=room)
        put(64, "eager", 1.0)
        usual = lookup_of(target, 64)
        wire.post(usual), wire.post(usual)
        for number in range(150):
            asked, changes = dict(usual), {}
            if how == "headers":
                changes["HTTP_ACCEPT"] = f"application/json;q=0.{number}," + "x/y," * 450
            elif how == "accepts":
                asked["accepts"] = {"versions": {f"a{number}-{one}": "1" for one in range(200)}}
            else:
                asked["job"] = f"{number}".ljust(200, "x")
            for _ in range(2):
                wire.post(asked, **changes)
        assert weighed(wire) < 3 * room

    def test_where_it_may_remember_nothing_django_answers(self, make_key, put, target):
        wire = Wire(make_key("lookup"), warm_bytes=0)
        put(64, "eager", 1.0)
        assert not any(wire.post(lookup_of(target, 64)).warm for _ in range(3))
        assert len(wire.front.memory) == 0


def weighed(wire: Wire) -> int:
    """Bytes of all that the front keeps: what is reached from it, but for classes, code and the database."""
    others = (type, ModuleType, Model, FunctionType, MethodType, Recalls)
    seen: dict[int, Any] = {}
    waiting: list[Any] = [wire.front._replies, wire.front._asks, wire.front._guises, wire.front.memory]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, others):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    return sum(sys.getsizeof(one) for one in seen.values())
