"""A real web process, asked by many at once and killed in the middle: hits served and ledger entries agree to
the unit, on SQLite and on PostgreSQL."""

import http.client
import json
import random
import threading
import time

import pytest

from dashboard.run.stack import Stack
from tests.catalog import making
from tests.hostile.conftest import by_day_on, deploy, deployment  # noqa: F401

pytestmark = pytest.mark.slow

THREADS, ROUNDS = 4, 2

# Of each lookup one hit is free, one is charged whatever the credit, one is served while there is credit.
SETUP = """
import django; django.setup()
from catalog.best.publishing import publish
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation, register_operator, register_setting, register_target
from dashboard.billing import accounts, pricelist
from dashboard.billing.models import PriceRule
from tests.catalog import making
target, setting = register_target(making.TARGET), register_setting(making.SETTING)
for length, route, method in ((64, "eager", "library"), (65, "tvm", "compiler"), (66, "cpp", "manual")):
    operator = register_operator(making.relu(length))
    place = {"operator": operator, "target": target, "setting": setting}
    publish(making.new_result(place, route, 2.0, method=method))
by, host = {"actor": "tests"}, default_organisation()
pricelist.add(PriceRule(name="compiled", currency="EUR", method="compiler", per_hit_micros=1_000), by)
held = PriceRule(name="written", currency="EUR", method="manual", mode="withhold", per_hit_micros=3_000)
pricelist.add(held, by)
accounts.give_credit(host, 80_000, "to begin with", currency="EUR", by=by)
print(create_api_key(host, "killed", ["lookup"])[1])
"""


class Asker(threading.Thread):
    """Asks until the server is gone; counts what it was answered."""

    def __init__(self, port: int, key: str) -> None:
        super().__init__()
        self.port, self.key = port, key
        self.free = self.charged = self.withheld = 0

    def run(self) -> None:
        lookup = json.dumps(
            {
                "target": making.TARGET.to_json(),
                "setting": making.SETTING.to_json(),
                "job": "killed",
                "operators": [{"key": making.relu(length).key} for length in (64, 65, 66)],
            }
        )
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while True:
            try:
                connection.request("POST", "/api/v1/lookup", lookup, headers)
                answer = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                return
            for item in answer.get("results", ()):
                self.free += item["status"] == "hit" and "price" not in item
                self.charged += item["status"] == "hit" and "price" in item
                self.withheld += item.get("state") == "payment_required"


@by_day_on("postgres")
def test_hits_served_are_ledger_entries_to_the_unit_after_any_crash(deployment, tmp_path):  # noqa: F811
    key = deployment.run("-c", SETUP).split()[-1]
    moments, askers = random.Random(5), []
    for number in range(ROUNDS):
        with Stack(
            deployment.environment, workers=0, courier=False, logs=tmp_path / f"logs{number}"
        ) as stack:
            fresh = [Asker(stack.port, key) for _ in range(THREADS)]
            for asker in fresh:
                asker.start()
            stack.wait_for(lambda: sum(one.free for one in fresh) >= 25, 60, "answers")  # noqa: B023
            time.sleep(moments.random())
            stack.processes[0].kill_group()
            for asker in fresh:
                asker.join()
            askers += fresh
    deployment.manage("drain_journal")
    assert "ok" in deployment.manage("check_ledger")
    free, charged, withheld = (
        sum(getattr(one, name) for one in askers) for name in ("free", "charged", "withheld")
    )
    in_flight = THREADS * ROUNDS
    assert min(free, charged, withheld) >= 20

    def one(sql):
        ((value,),) = deployment.query(sql)
        return int(value or 0)

    # Every answered hit has its entry and its usage; beyond them at most what was in flight (two a lookup).
    entries = one("SELECT COUNT(*) FROM billing_ledgerentry WHERE kind = 'charge'")
    assert charged <= entries <= charged + 2 * in_flight
    assert entries == one("SELECT COUNT(*) FROM catalog_usage WHERE segment LIKE 'charged-%'")
    assert entries == one("SELECT COUNT(DISTINCT usage_id) FROM billing_ledgerentry WHERE kind = 'charge'")
    assert entries == one("SELECT SUM(entries) FROM billing_ledgerday WHERE kind = 'charge'")
    assert entries == one("SELECT SUM(hits) FROM billing_monthcount")
    used = one("SELECT COUNT(*) FROM catalog_usage WHERE segment NOT LIKE 'charged-%'")
    assert free <= used <= free + in_flight
    assert entries + used == one("SELECT SUM(hits) FROM catalog_lookuptally")
    assert entries + used == one("SELECT SUM(hits) FROM catalog_joboperator")

    # The money: the balance is the sum, each entry's balance follows from the one before, and what is
    # withheld was never served on credit that was not there.
    rows = deployment.query(
        "SELECT entry.amount_micros, entry.balance_after_micros, rule.mode FROM billing_ledgerentry entry "
        "LEFT JOIN billing_pricerule rule ON rule.id = entry.rule_id ORDER BY entry.id"
    )
    balance = 0
    for amount, after, mode in rows:
        balance += amount
        assert after == balance
        assert mode != "withhold" or balance >= 0
    assert balance == one("SELECT balance_micros FROM billing_account")
    held = one("SELECT SUM(times) FROM billing_held")
    assert withheld <= held <= withheld + in_flight
