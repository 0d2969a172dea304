"""Whose a network is, what it learnt from, and the command that trains it."""

from __future__ import annotations

import hashlib
import json

import pytest
from django.core.management import CommandError, call_command

from catalog.best.artifacts import file_path
from catalog.models import Model, ModelOperator, Organisation, PredictorNetwork
from catalog.people.keys import create_api_key
from catalog.registry import register_operator
from catalog.usage.draining import drain_journal
from opatlas.client.predict.network import OperatorNetwork
from opatlas.errors import InvalidModel
from opatlas.load.signing import new_key
from tests.catalog import making
from tests.catalog.conftest import ask, own_folders, setting, target  # noqa: F401 - used by every test here
from tests.conftest import Api
from tests.opatlas.client.test_network import trained
from tuning.predictor.publishing import KEPT, publish_network
from tuning.predictor.recorded import recorded_for


@pytest.fixture
def signing_key(tmp_path):
    return new_key(tmp_path / "worker" / "key.pem")


@pytest.fixture
def add_model(target, setting):  # noqa: F811
    def add(owner, *lengths):
        about = {"name": "m", "sha256": str(lengths), "form": "onnx", "target": target, "setting": setting}
        model = Model.objects.create(organisation=owner, **about)
        for length in lengths:
            row = register_operator(making.relu(length))
            ModelOperator.objects.create(model=model, operator=row, calls=1, example="")

    return add


def lengths_in(keys):
    names = {making.relu(length).key: length for length in range(64, 80)}
    return [names[key] for key in keys]


def test_a_network_is_its_organisations_alone_and_comes_before_a_shared_one(
    organisation, tenant, signing_key
):
    own, theirs = (Api(create_api_key(one, "job", ["lookup"])[1]) for one in (organisation, tenant))
    assert own.get("predictor").status_code == 404
    row = publish_network(trained(), organisation, signing_key)
    assert own.get("predictor").json()["document"]["scope"] == f"org:{organisation.pk}"
    assert theirs.get("predictor").status_code == theirs.get(f"predictor/{row.sha256}").status_code == 404
    shared = publish_network(trained(2), None, signing_key)
    assert theirs.get("predictor").json()["document"]["sha256"] == shared.sha256
    assert own.get("predictor").json()["document"]["sha256"] == row.sha256


def test_it_learns_from_nobody_elses_jobs_or_models(ask, add_model, organisation, tenant):  # noqa: F811
    ask(64, 65, job="mine")
    ask(66, 67, job="theirs", organisation=tenant)
    drain_journal()
    add_model(None, 69, 68)
    add_model(tenant, 70, 71)

    def learnt(owner):
        return sorted(lengths_in(one) for one in recorded_for(owner))

    assert learnt(organisation) == [[64, 65], [69, 68]]
    assert learnt(tenant) == [[66, 67], [69, 68], [70, 71]]
    assert learnt(None) == [[69, 68]]
    assert learnt(Organisation.objects.create(name="new")) == [[69, 68]]


def test_old_versions_go_with_their_files(db, signing_key):
    for epochs in (1, 2, 3, 2):
        newest = publish_network(trained(epochs), None, signing_key)
    assert newest.version == 4 and PredictorNetwork.objects.count() == KEPT
    first = hashlib.sha256(trained(1)).hexdigest()
    assert not file_path(first).exists() and file_path(newest.sha256).exists()


def test_the_command_trains_for_one_or_for_all(ask, add_model, organisation, tmp_path, capsys):  # noqa: F811
    ask(64, 65, 66, job="run")
    ask(72)  # of no job: known, in no order
    drain_journal()
    add_model(None, 67, 68)
    record = {"op": "aten.relu.default", "inputs": [{"shape": [8, 9], "dtype": "float16"}], "count": 1}
    other = record | {"inputs": [{"shape": [9, 9], "dtype": "float16"}]}
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "log.json").write_text(json.dumps([record, other]))
    call_command("train_predictor", "--organisation", organisation.name, "--epochs", "1")
    call_command("train_predictor", tmp_path / "lists", "--epochs", "1")
    said = capsys.readouterr().out
    assert f"Version 1 (for {organisation}) learnt from 2 jobs and models with 6 operators" in said
    assert "Version 1 (shared) learnt from 2 jobs and models with 4 operators" in said
    own, shared = (PredictorNetwork.objects.get(owner=one) for one in (organisation, None))
    assert sorted(lengths_in(_keys(own))) == [64, 65, 66, 67, 68, 72]
    assert not set(_keys(shared)) & {making.relu(length).key for length in (64, 65, 66)}


def _keys(row):
    return OperatorNetwork.read(file_path(row.sha256).read_bytes()).keys


def test_the_command_says_what_is_wrong(db, tmp_path):
    for wrong, sentence, kind in (
        (["--organisation", "nobody"], "There is no organisation 'nobody'.", CommandError),
        (["--epochs", "0"], "--epochs is a number from 1 on.", CommandError),
        ([str(tmp_path / "gone")], "There is no .*gone: name ONNX models", CommandError),
        ([], "There is nothing to learn from", CommandError),
    ):
        with pytest.raises((kind, InvalidModel), match=sentence):
            call_command("train_predictor", *wrong)
