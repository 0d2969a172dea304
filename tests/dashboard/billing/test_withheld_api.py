"""What REST shows of charged and withheld implementations."""

import json

import pytest

from catalog.charging import absolute
from catalog.models import Usage
from catalog.people.keys import create_api_key
from catalog.usage.draining import drain_journal
from tests.catalog import making
from tests.conftest import Api


@pytest.fixture
def client(tenant):
    return Api(create_api_key(tenant, "job", ["lookup"])[1])


@pytest.fixture
def compiled(put, tmp_path):
    """A compiled Relu of 64 numbers with one file."""
    files = making.write_file(tmp_path / "built", "kernel.so", b"machine code")
    return put(
        64, "tvm", 2.0, kind="c-abi", method="compiler", files=files, folder=tmp_path / "built"
    ).implementation


@pytest.fixture
def look_up(client, target, setting):
    def post(**more):
        body = {"target": target.key, "setting": setting.key, "operators": [{"graph": making.relu_json(64)}]}
        answer = client.post("lookup", body | more)
        assert answer.status_code == 200, answer.json()
        return answer.json()["results"][0]

    return post


def addresses(implementation):
    artifact = implementation.artifact.sha256
    return (
        f"artifacts/{artifact}",
        f"artifacts/{artifact}/files/kernel.so",
        f"implementations/{implementation.pk}",
    )


def test_a_charged_hit_has_its_price_beside_it(compiled, look_up, price):
    price(0.02)
    item = look_up()
    assert item["status"] == "hit"
    assert item["best"]["artifact"] == compiled.artifact.sha256
    assert item["price"]["amount_micros"] == item["price"]["due_micros"] == 20_000
    assert (item["price"]["currency"], item["price"]["pay_url"]) == ("EUR", absolute("/billing/"))
    assert item["price"]["pay_url"].startswith("http")


def test_a_withheld_item_is_empty_and_leaks_neither_address_nor_candidate(compiled, look_up, price):
    rule = price(0.02, mode="withhold")
    item = look_up()
    assert (item["status"], item["state"]) == ("miss", "payment_required")
    assert "best" not in item
    assert item["price"]["amount_micros"] == 20_000
    assert item["price"]["rule"] == rule.pk
    assert item["withheld"]["median_us"] == 50.0
    assert item["withheld"]["ratio_to_default"] == 2.0
    text = json.dumps(item)
    assert compiled.artifact.sha256 not in text
    assert compiled.label not in text


def test_the_fastest_that_the_caller_can_load_decides(compiled, put, look_up, price):
    """No slower one takes the place of what is withheld; who cannot load that is not asked to pay."""
    put(64, "eager", 1.0)
    price(0.02, mode="withhold", method="compiler")
    assert look_up()["state"] == "payment_required"
    assert look_up(accepts={"kinds": ["recipe"]})["best"]["route"] == "eager"


def test_addresses_answer_402_with_the_price_until_it_was_paid(
    compiled, client, look_up, price, credit, tenant
):
    price(0.02, mode="withhold")
    for path in addresses(compiled):
        refused = client.get(path)
        assert refused.status_code == 402, path
        assert refused.json()["price"]["amount_micros"] == 20_000
        assert refused.json()["error"]
    credit(0.02, to=tenant)
    assert client.get(addresses(compiled)[0]).status_code == 402  # credit alone is no purchase
    assert look_up()["status"] == "hit"
    for path in addresses(compiled):
        assert client.get(path).status_code == 200, path
    assert look_up()["state"] == "payment_required"  # the next hit costs again …
    for path in addresses(compiled):
        assert client.get(path).status_code == 200, path  # … but what was bought stays bought


def test_the_list_of_implementations_hides_what_would_do_instead(compiled, client, price):
    price(0.02, mode="withhold")
    (row,) = client.get(f"operators/{compiled.operator.key}/implementations").json()["results"]
    assert (row["artifact"], row["candidate"]) == ("", {})
    assert row["price"]["amount_micros"] == 20_000


def test_another_organisation_without_a_rule_gets_it_free(compiled, api, price, tenant):
    price(0.02, mode="withhold", organisation=tenant)
    for path in addresses(compiled):
        assert api.get(path).status_code == 200
    (row,) = api.get(f"operators/{compiled.operator.key}/implementations").json()["results"]
    assert row["artifact"] == compiled.artifact.sha256
    assert "price" not in row


def test_prompt_rules_withhold_nothing(compiled, client, price):
    price(0.02)
    for path in addresses(compiled):
        assert client.get(path).status_code == 200


def test_trials_of_what_is_withheld_do_not_show_how_it_was_made(
    compiled, client, price, credit, look_up, tenant
):
    from django.utils import timezone

    from tuning.models import Exploration, Trial

    exploration = Exploration.objects.create(
        operator=compiled.operator, target=compiled.target, setting=compiled.setting,
        capability=compiled.target.capability, asked_at=timezone.now(),
    )  # fmt: skip
    common = {"exploration": exploration, "route": "tvm", "method": "compiler", "stage": 1, "status": "ok"}
    Trial.objects.create(**common, candidate={"call": "tvm"}, implementation=compiled)
    Trial.objects.create(**common, candidate={"call": "slower"}, log_tail="how it was made")
    Trial.objects.create(**common | {"route": "eager", "method": "library"}, candidate={"call": "eager"})

    def shown():
        return [row["candidate"] for row in client.get("trials/").json()["results"]]

    all_of_them = [{"call": "eager"}, {"call": "slower"}, {"call": "tvm"}]
    assert shown() == all_of_them
    price(0.02, mode="withhold")
    assert shown() == [{"call": "eager"}, {}, {}], "a try that led to it is made alike"
    assert "how it was made" not in client.get("trials/").content.decode()
    credit(0.02, to=tenant)
    look_up()
    assert shown() == all_of_them


@pytest.mark.django_db(transaction=True)
def test_a_jobs_client_is_told_the_price_and_gets_nothing_that_is_withheld(
    compiled, live_server, tenant, target, setting, price
):
    from opatlas.client.service.rest import RestClient

    key = create_api_key(tenant, "job", ["lookup"])[1]
    price(0.02)
    with RestClient(live_server.url, key, target=making.TARGET, setting=making.SETTING) as service:
        (answer,) = service.lookup([making.relu(64)])
        assert (answer.status, answer.price["amount_micros"]) == ("hit", 20_000)
        price(0.05, mode="withhold", priority=1)
        (answer,) = service.lookup([making.relu(64)])
        assert (answer.status, answer.state, answer.best) == ("miss", "payment_required", None)
        assert answer.price["amount_micros"] == 50_000


def test_a_person_of_no_organisation_has_paid_for_nothing(compiled, price, put):
    from django.contrib.auth.models import User
    from django.test import Client

    price(0.02, mode="withhold", method="compiler")
    free = put(64, "onednn", 1.5).implementation
    browser = Client()
    browser.force_login(User.objects.create_user("stranger"))
    path = f"/operators/{compiled.operator.key}/code"
    assert browser.get(f"{path}/{compiled.pk}/").status_code == 402
    assert browser.get(f"{path}/{free.pk}/").status_code == 200
    assert b"0.02 EUR" in browser.get(f"/operators/{compiled.operator.key}/").content


@pytest.mark.parametrize("mode", ["prompt", "withhold"])
def test_what_costs_something_is_not_given_as_a_related_one(
    compiled, look_up, price, client, target, setting, mode
):
    price(0.02, mode=mode)
    body = {"target": target.key, "setting": setting.key, "include": ["related", "manifest"]}
    asked, other = {"graph": making.relu_json(99)}, {"graph": making.relu_json(64)}
    answer = client.post("lookup", body | {"operators": [asked], "related": [other]}).json()
    assert answer["related"] == [{"key": making.relu(64).key, "status": "need_lookup"}]
    assert "manifests" not in answer
    answer = client.post("lookup", body | {"operators": [other], "related": [other]}).json()
    assert answer["related"][0]["status"] == "need_lookup"
    assert ("manifests" in answer) == (mode == "prompt"), "it was charged, or withheld"


@pytest.mark.parametrize("mode", ["prompt", "withhold"])
def test_what_costs_something_never_comes_along_unasked(compiled, price, client, put, target, setting, mode):
    for length in (99, 100):
        put(length, "tvm", 2.0, method="library")
    place = {"target": target.key, "setting": setting.key}
    model = [{"graph": making.relu_json(length)} for length in (99, 64, 100)]
    client.post("lookup", place | {"operators": model, "job": "run"})
    drain_journal()
    price(0.02, mode=mode, method="compiler")
    body = place | {"include": ["next", "manifest"], "operators": model[:1]}
    answer = client.post("lookup", body).json()
    assert [item["key"] for item in answer["next"]] == [making.relu(100).key]
    assert len(answer["manifests"]) == 2 and Usage.objects.count() == 3


def test_what_costs_something_is_not_counted_when_it_is_reported(compiled, client, price):
    price(0.02)
    report = {"client": "c" * 32, "sequence": 1, "used": [{"implementation": compiled.pk}]}
    assert client.post("usage", report).json() == {"counted": 0, "repeated": False}
