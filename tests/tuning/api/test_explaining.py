"""Why a lookup answers as it does, and what is near."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.best.publishing import publish
from catalog.models import Miss, Operator, Organisation, Target
from catalog.registry import register_operator, register_setting, register_target
from dashboard.billing import rules
from opatlas.identity import Setting, Value
from tests.catalog import making
from tests.dashboard.billing.conftest import price  # noqa: F401
from tests.tuning import fakes

pytestmark = pytest.mark.django_db
NAMED = {"operator": {"graph": fakes.operator("Relu", 1024).to_json()}}


@pytest.fixture(autouse=True)
def forgotten_rules():
    yield
    rules.forget()


@pytest.fixture
def explain(api, target_row, setting):
    """``explain(operator={…}, accepts=…)`` → the answer, of a Relu of 1024 numbers."""

    def post(status=200, **more):
        body = {"target": target_row.key, "setting": register_setting(setting).key} | NAMED | more
        answer = api.post("explain", body)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return post


@pytest.fixture
def put(target_row, setting):
    """``put("Relu", 1024)``: a published best; ``target``, ``setting`` of elsewhere, or what else it has."""

    def make(op="Relu", size=1024, graph=None, **changes):
        place = {
            "operator": register_operator(graph or fakes.operator(op, size)),
            "target": changes.pop("target", target_row),
            "setting": changes.pop("setting", register_setting(setting)),
        }
        return publish(making.new_result(place, changes.pop("route", "torch"), 2.0, **changes))

    return make


def test_what_nobody_asked_for_is_unknown_and_stays_so(explain):
    answer = explain()
    assert (answer["state"], answer["key"]) == ("unknown", fakes.operator().key)
    assert "Nobody has asked for it here yet" in answer["sentence"]
    assert not Miss.objects.exists() and not Operator.objects.exists(), "nothing is recorded"
    assert explain(operator={"key": fakes.operator("Relu", 77).key})["state"] == "never_seen"


def test_a_queued_one_says_how_long_it_will_take(explain, make_exploration, live_worker):
    make_exploration("Sigmoid", worth=5.0)
    make_exploration(worth=1.0)
    answer = explain()
    assert answer["state"] == "queued"
    assert "1 exploration is before it, for 1 worker" in answer["sentence"]
    assert answer["expected_s"] > answer["wait_s"] > 0
    assert answer["position"] == 2


def test_what_is_in_no_queue_has_no_position(explain, make_exploration, live_worker):
    assert explain()["position"] is None
    make_exploration(state="running", doing="halide: building")
    assert explain()["position"] is None


def test_a_running_one_says_what_is_done(explain, make_exploration, live_worker):
    make_exploration(state="running", doing="halide: building")
    answer = explain()
    assert answer["state"] == "exploring" and "halide: building" in answer["sentence"]


@pytest.mark.parametrize("state", ["discarded", "postponed", "unsupported", "failed"])
def test_what_was_decided_comes_with_its_reason(explain, make_miss, state):
    make_miss(state=state, reason="It is too large.")
    answer = explain()
    assert answer["state"] == state and answer["sentence"].endswith("It is too large.")


def test_a_hit_says_what_is_known_and_whether_exploring_goes_on(explain, put, make_exploration, live_worker):
    put(label="plain")
    answer = explain()
    assert (answer["state"], answer["sentence"]) == ("hit", "Known: torch: plain, 2.00× the default.")
    from catalog.models import Best

    Best.objects.update(final=False)
    make_exploration(stage=1)
    answer = explain()
    assert answer["state"] == "contested" and "Exploring goes on." in answer["sentence"]
    assert answer["expected_s"] > 0 and answer["position"] == 1


def test_what_is_to_be_paid_first_is_withheld(explain, put, price):  # noqa: F811
    put()
    price(5.0)
    assert explain()["state"] == "hit"
    price(5.0, mode="withhold")
    answer = explain()
    assert (answer["state"], answer["stage"], answer["nearest"]) == ("withheld", "first", [])
    assert (
        answer["sentence"].startswith("Each hit costs 5.00 EUR; withheld")
        and "torch" not in answer["sentence"]
    )


def test_what_cannot_be_loaded_names_what_is_missing(explain, put):
    put(needs={"torch": "2.13.0"})
    answer = explain(accepts={"kinds": ["c-abi"], "versions": {"torch": "2.12.0"}})
    assert answer["state"] == "not_loadable"
    (nearest,) = answer["nearest"]
    assert nearest["differs"] == [
        {"field": "kind", "asked": "c-abi", "known": "recipe"},
        {"field": "needs.torch", "asked": "2.12.0", "known": "2.13.0"},
    ]
    (nearest,) = explain(accepts={"versions": {}})["nearest"]
    assert nearest["differs"] == [{"field": "needs.torch", "asked": "not installed", "known": "2.13.0"}]


def test_the_same_operator_on_a_sibling_of_the_target(explain, put):
    put(target=register_target(replace(fakes.TARGET, cores=8)))
    put(setting=register_setting(Setting(threads=1)))
    near = explain()["nearest"]
    assert [one["differs"] for one in near] == [
        [{"field": "setting.threads", "asked": "2", "known": "1"}],
        [{"field": "target.cores", "asked": "2", "known": "8"}],
    ]


def test_features_that_one_has_and_the_other_lacks_are_named_not_listed(explain, put, api, setting):
    many = tuple(f"f{number:02}" for number in range(20))
    put(target=register_target(replace(fakes.TARGET, features=(*many, "avx512f"))))
    body = {"target": replace(fakes.TARGET, features=many).to_json(), "setting": setting.to_json()} | NAMED
    (near,) = api.post("explain", body).json()["nearest"]
    assert near["differs"] == [
        {"field": "target.features", "asked": "without these", "known": "with avx512f"}
    ]


def test_the_nearest_of_its_kind_here(explain, put):
    for size in (1 << 20, 2048, 16):
        put(size=size)
    put(op="Sigmoid")
    near = explain()["nearest"]
    assert [one["operator"] for one in near] == [
        fakes.operator("Relu", size).key for size in (2048, 16, 1 << 20)
    ], "by how many doublings they are away"
    assert near[0]["differs"] == [
        {"field": "operator.inputs[0].shape", "asked": "1024", "known": "2048"},
        {"field": "operator.produced[0].shape", "asked": "1024", "known": "2048"},
    ]
    assert near[0]["ratio_to_default"] == 2.0


def test_the_same_in_another_dtype_is_near(explain, put):
    half = Value("float16", (1024,))
    put(graph=replace(fakes.operator(), inputs=(half,), produced=(half,)))
    (near,) = explain()["nearest"]
    assert near["differs"] == [
        {"field": "operator.inputs[0].dtype", "asked": "float32", "known": "float16"},
        {"field": "operator.produced[0].dtype", "asked": "float32", "known": "float16"},
    ]


def test_what_is_private_to_others_is_not_near(explain, put):
    other = Organisation.objects.create(name="theirs")
    put(size=2048, scope=f"org:{other.pk}", owner=other)
    put(target=register_target(replace(fakes.TARGET, cores=8)), scope=f"org:{other.pk}", owner=other)
    assert explain()["nearest"] == []


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"operator": {"graph": {"op": "NoSuch", "inputs": []}}}, "operators[0].graph"),
        ({"operator": "Relu"}, ""),
        ({"target": "t1:" + "0" * 64}, "target"),
        ({"wish": 1}, "wish"),
    ],
)
def test_wrong_questions_are_refused(explain, more, where):
    answer = explain(status=404 if "target" in more else 400, **more)
    assert answer.get("where", "").startswith(where)


def test_a_client_explains(live_server, make_key, tmp_path, transactional_db, setting):
    from opatlas.client import Client, ServiceError

    with Client(
        live_server.url, make_key("lookup"), cache=tmp_path, target=fakes.TARGET, setting=setting
    ) as job:
        assert job.explain("Relu", (1024,))["state"] == "unknown"
        job.offline = True
        with pytest.raises(ServiceError, match="offline"):
            job.explain("Relu", (1024,))


@pytest.mark.parametrize(("state", "given"), [("promoted", True), ("unsupported", False)])
def test_it_says_what_is_given_of_a_neighbour_meanwhile(
    explain, put, make_miss, target_row, tenant, state, given
):
    there = replace(fakes.TARGET, cores=8)
    elsewhere = {"target": register_target(there), "setting": register_setting(Setting(threads=8))}
    put(**elsewhere, route="theirs", scope=f"org:{tenant.pk}", owner=tenant)
    make_miss(state=state)
    assert "Until a worker" not in explain()["sentence"]
    put(**elsewhere)
    assert "Until a worker" not in explain()["sentence"], "one serves it"
    Target.objects.update(served_until=None)
    sentence = explain()["sentence"]
    said = "is given torch: torch {'call': 'torch'} of the target "
    assert (said in sentence and "(cores 8, here 2; setting.threads 8, here 2)" in sentence) == given
    assert "Until a worker" not in explain(accepts={"kinds": ["c-abi"]})["sentence"]
