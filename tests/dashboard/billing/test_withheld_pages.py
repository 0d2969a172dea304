"""What is withheld is said where people look, with count and price."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.best.publishing import publish
from catalog.models import Best, Job, Model, ModelOperator, Operator
from catalog.registry import register_target
from catalog.usage.draining import drain_journal
from catalog.withheld import prices_withheld_from
from dashboard.templatetags.opatlas import badge
from tests.catalog import making
from tests.dashboard.billing.test_pages import tenant, text_of  # noqa: F401
from tests.dashboard.people import member_client
from tuning import ingest


@pytest.fixture
def job(tenant, ask, put, price):  # noqa: F811
    """It asked thrice for what costs and once for what is free."""
    put(64, "tvm", 2.0, method="compiler")
    put(32, "eager", 1.0)
    price(0.02, mode="withhold", method="compiler")
    for lengths in ((64,), (64,), (64, 32)):
        ask(*lengths, organisation=tenant, job="train")
    drain_journal()
    return Job.objects.get(name="train")


@pytest.mark.parametrize("role", ["billing", "viewer"])
def test_a_withheld_hit_is_said_with_count_and_price_on_job_operator_and_overview(tenant, job, role):  # noqa: F811
    mine = member_client(tenant, role)
    for path, said in (
        (f"/jobs/{job.pk}/", "1 operator withheld."),
        (f"/operators/{making.relu(64).key}/", "3 withheld (7d): lookups of this operator came back empty"),
        ("/", "3 withheld"),
    ):
        text = text_of(mine.get(path))
        assert said in text and "0.02 EUR" in text, path
        assert ("Pay to open" in text) == (role == "billing"), path
    covered = "25 % of its calls would hit now; 75 % withheld until paid"
    assert covered in text_of(member_client(tenant, "operator").get(f"/jobs/{job.pk}/"))


def test_a_job_is_not_covered_by_what_it_does_not_get(tenant, job, credit):  # noqa: F811
    mine, path = member_client(tenant, "viewer"), f"/jobs/{job.pk}/"

    def states(status=""):
        answer = mine.get(path, {"export": "json", "table": "operators", "status": status})
        return {row["summary"]: row["state"] for row in json.loads(answer.content)["rows"]}

    (missing,) = json.loads(mine.get(path, {"export": "json", "table": "missing"}).content)["rows"]
    assert (missing["state"], missing["operators"], missing["calls"]) == ("withheld", 1, 3)
    assert sorted(states().values()) == ["hit", "withheld"]
    assert list(states("withheld").values()) == ["withheld"] and list(states("hit").values()) == ["hit"]
    credit(1, to=tenant)  # then the next lookup is served, and charged
    assert set(states().values()) == {"hit"}
    assert "withheld" not in text_of(mine.get(path))


def test_all_is_not_well_while_hits_are_withheld(tenant, job):  # noqa: F811
    assert "All well" not in text_of(member_client(tenant, "viewer").get("/"))


def test_a_model_is_not_covered_by_what_it_does_not_get(tenant, job, credit):  # noqa: F811
    held, free = (making.relu(length) for length in (64, 32))
    row = Model.objects.create(
        organisation=tenant, name="net", sha256="0" * 64, calls=4, hits_before=0.0,
        target=Best.objects.first().target, setting=Best.objects.first().setting,
    )  # fmt: skip
    for operator, calls in ((held, 3), (free, 1)):
        ModelOperator.objects.create(model=row, operator=Operator.objects.get(key=operator.key), calls=calls)
    report = ingest.model_report(row)
    states = {one.calls: (one.status, one.route, one.median_us) for one in report.rows}
    assert states[3] == ("withheld", "", None) and states[1][0] == "hit"
    assert "0.02 EUR" in next(one.reason for one in report.rows if one.status == "withheld")
    assert report.totals.hit_share == 0.25
    page = text_of(member_client(tenant, "viewer").get(f"/models/{row.pk}/"))
    assert "75 % withheld until paid" in page
    credit(1, to=tenant)
    assert {one.status for one in ingest.model_report(row).rows} == {"hit"}


class TestListOfOperators:
    @pytest.fixture
    def mine(self, tenant):  # noqa: F811
        return member_client(tenant, "viewer")

    @pytest.fixture
    def standings(self, mine):
        def of(client=None, **asked):
            """Of the list's export: the operators' summaries with their states."""
            answer = (client or mine).get("/operators/", {"export": "json", "table": "operators"} | asked)
            rows = json.loads(answer.getvalue())["rows"]
            return {int(row["summary"].split()[2]): row["status"] for row in rows}

        return of

    def test_what_is_withheld_is_no_hit_until_it_is_paid(self, tenant, job, mine, standings, credit):  # noqa: F811
        assert standings() == {64: "withheld", 32: "hit"}
        assert standings(status="withheld") == {64: "withheld"} and standings(status="hit") == {32: "hit"}
        for sort in ("-saved", "time", "name"):
            assert list(standings(status="withheld", sort=sort)) == [64]
        assert standings(status="withheld", op_type="Relu") == {64: "withheld"}
        assert standings(status="withheld", q="relu dim<64") == {}
        page = mine.get("/operators/").content.decode()
        assert str(badge("withheld")) in page and "<option>withheld</option>" in page
        assert "0.02 EUR" in text_of(mine.get("/operators/"))
        credit(1, to=tenant)  # then the next lookup is served, and charged
        assert standings() == {64: "hit", 32: "hit"} and standings(status="withheld") == {}

    def test_who_runs_the_service_has_everything(self, job, admin_client, standings):
        assert standings(admin_client) == {64: "hit", 32: "hit"}
        assert "<option>withheld" not in admin_client.get("/operators/").content.decode()

    def test_of_several_targets_the_best_that_is_shown_counts(self, job, standings, place_of, target):
        there = place_of(64) | {"target": register_target(making.GPU)}
        for ratio, shown in ((1.0, "withheld"), (9.0, "hit")):
            publish(making.new_result(there, "eager", ratio))
            assert standings() == {64: shown, 32: "hit"}
            assert list(standings(status=shown, q="dim>32")) == [64]
            assert standings(target=target.key) == {64: "withheld", 32: "hit"}
            assert standings(target=there["target"].key, status="hit") == {64: "hit"}

    @pytest.mark.parametrize(
        "rule",
        [{}, {"route": "tvm"}, {"op_type": "Relu", "method": "compiler"}, {"scope": "shared"}],
    )
    def test_whatever_a_price_asks_for(self, tenant, put, price, standings, rule):  # noqa: F811
        put(64, "tvm", 2.0, method="compiler")
        price(0.02, mode="withhold", **rule)
        price(0.02, mode="withhold", method="manual")
        assert standings(status="withheld") == {64: "withheld"}
        price(0, mode="free", route="tvm", priority=1)
        assert standings(status="hit") == standings() == {64: "hit"}

    def test_a_page_asks_as_often_however_many_are_withheld(self, tenant, put, price, mine):  # noqa: F811
        price(0.02, mode="withhold", method="compiler")
        counts = []
        for lengths in ((8,), range(9, 30)):
            for length in lengths:
                put(length, "tvm", 2.0, method="compiler")
            mine.get("/operators/?status=withheld")
            with CaptureQueriesContext(connection) as statements:
                assert "withheld" in mine.get("/operators/?status=withheld").content.decode()
            # Price rules are read by the clock: twice a second.
            counts.append(sum("pricerule" not in one["sql"] for one in statements))
        assert counts[0] == counts[1]


def test_no_best_is_looked_at_where_no_price_withholds(tenant, ask, put, price):  # noqa: F811
    put(64, "tvm", 2.0, method="compiler")
    ask(64, organisation=tenant, job="train")
    drain_journal()
    price(0.02, mode="prompt", method="compiler")
    job = Job.objects.get(name="train")
    with CaptureQueriesContext(connection) as statements:
        assert prices_withheld_from(job) == {}
    assert not any("catalog_best" in one["sql"] for one in statements)
    price(0.02, mode="withhold", method="compiler", priority=1)
    assert set(prices_withheld_from(job).values()), "and where one does, it is"
