import io
import json

import pytest
from django.core.management import CommandError, call_command

from bench.seed import catalogue_command
from bench.seed import implementations as synthetic
from catalog import models
from catalog.people.keys import authenticate
from tests.catalog import making


def run(*arguments):
    said = io.StringIO()
    call_command(*arguments, stdout=said, stderr=io.StringIO())
    return said.getvalue()


def test_a_key_is_made_and_closed_by_command(db):
    text = run("create_api_key", "job", "--scopes", "lookup", "operate", "--organisation", "lab").strip()
    key = authenticate(text)
    assert (key.organisation.name, key.scopes) == ("lab", ["lookup", "operate"])
    assert "revoked" in run("revoke_api_key", key.prefix)
    with pytest.raises(CommandError, match="No API key"):
        run("revoke_api_key", "nothing")


def test_a_keys_limits_are_said_to_the_command(db):
    text = run(
        "create_api_key", "job", "--expires", "2099-01-31", "--addresses", "192.0.2.0/24", "::1"
    ).strip()
    key = authenticate(text, "::1")
    assert (str(key.expires_at), key.addresses) == ("2099-01-31 00:00:00+00:00", ["192.0.2.0/24", "::1/128"])
    for wrong in (["--expires", "2001-01-31"], ["--expires", "soon"], ["--addresses", "192.0.2.1/24"]):
        with pytest.raises(CommandError):
            run("create_api_key", "job", *wrong)
    assert models.ApiKey.objects.count() == 1


def test_unknown_scopes_are_a_command_error(db):
    with pytest.raises(CommandError, match="Scopes"):
        run("create_api_key", "job", "--scopes", "fly")


def test_the_journal_is_drained_by_command(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    assert run("drain_journal").startswith("1 lines")
    assert models.Usage.objects.count() == 1


class TestSeed:
    def test_it_fills_a_catalogue_that_can_be_asked(self, api_with, tmp_path, db):
        operators = [making.relu(n) for n in range(1, 8)]
        path = tmp_path / "operators.json"
        path.write_text(json.dumps([operator.to_json() for operator in operators]))
        said = run(catalogue_command.Command(), "--implementations", "101", "--operators", str(path))
        made = json.loads(said.strip().splitlines()[-1])
        assert models.Implementation.objects.count() == models.Best.objects.count() == 101
        answer = api_with(made["key"]).post(
            "lookup",
            {"target": made["target"], "setting": made["setting"],
             "operators": [{"key": operator.key} for operator in operators]},
        ).json()  # fmt: skip
        assert {result["status"] for result in answer["results"]} == {"hit"}
        assert {result["best"]["route"] for result in answer["results"]} == {"synthetic-a"}

    def test_every_row_says_that_it_is_invented(self, target, setting):
        list(synthetic.seed(10, [], target, setting))
        assert all(row.route.startswith("synthetic") for row in models.Best.objects.all())
        assert all("not measured" in row.label for row in models.Best.objects.all())

    def test_it_never_stands_beside_measured_results(self, put, target, setting):
        put(64, "eager", 1.0)
        with pytest.raises(synthetic.NotEmpty):
            list(synthetic.seed(10, [], target, setting))
        assert models.Implementation.objects.count() == 1
