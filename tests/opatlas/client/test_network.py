"""The network that predicts: learnt from orders, the same wherever it runs, refused where anything is not as
it should be; and a job goes on whatever it says."""

from __future__ import annotations

import functools
import json
import logging

import numpy as np
import onnx
import pytest
from django.core.management import call_command
from onnx import numpy_helper

from catalog.best.artifacts import file_path
from catalog.usage.draining import drain_journal
from opatlas.client import Learnt, Nothing, Trust
from opatlas.client.predict import network
from opatlas.client.predict.network import WIDTH, OperatorNetwork, features
from opatlas.errors import InvalidModel, LoadError
from opatlas.load.signing import new_key, public_bytes
from tests.catalog import making
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import add_operator
from tuning.predictor.publishing import publish_network
from tuning.predictor.training import TrainingWish, train

SIZES = range(990, 1000)


def order(operators):
    return {one.key: one.to_json() for one in operators}


@functools.cache
def trained(epochs=40, seed=0):
    """A network that saw two models: additions that grow, and Relus that shrink."""
    models = [order(map(add_operator, SIZES)), order(map(making.relu, range(80, 64, -1)))]
    return train(models, TrainingWish(epochs, seed))


# ---- the network ----------------------------------------------------------------------------------------


def test_it_learns_what_comes_next():
    learnt = OperatorNetwork.read(trained())
    for operators in ([add_operator(size) for size in SIZES], [making.relu(n) for n in range(80, 64, -1)]):
        keys = [one.key for one in operators]
        likely = learnt.likeliest([learnt.after[learnt.places[keys[0]]]], 0, 10)
        assert len(set(likely) & set(keys)) >= 9, "of 26 operators those of the same model"


def test_the_same_orders_and_seed_give_the_same_bytes():
    assert trained() == trained.__wrapped__(40)
    assert trained() != trained.__wrapped__(40, seed=1)


def test_nothing_to_learn_from_is_said():
    with pytest.raises(InvalidModel, match="it takes two jobs or models at least"):
        train([order([add_operator(5), add_operator(6)]), order([add_operator(5)])])


def test_onnxruntime_and_numpy_say_the_same():
    quick, plain = OperatorNetwork.read(trained()), OperatorNetwork.read(trained(), plain=True)
    rows = np.random.default_rng(0).random((100, WIDTH), np.float32)
    assert np.abs(quick.embed(rows)).max() > 0.1
    np.testing.assert_allclose(quick.embed(rows), plain.embed(rows), rtol=1e-4, atol=1e-5)
    known = np.stack([features(add_operator(size).to_json()) for size in SIZES])
    own = np.stack([plain.after[plain.places[add_operator(size).key]] for size in SIZES])
    np.testing.assert_allclose(quick.embed(known), own, rtol=1e-4, atol=1e-5)
    assert quick.likeliest(own[:4], 7, 20) == plain.likeliest(own[:4], 7, 20)


def broken(change):
    model = onnx.ModelProto.FromString(trained())
    change(model)
    return model.SerializeToString()


def _initializer(model, name):
    return next(one for one in model.graph.initializer if one.name == name)


def _external(model):
    tensor = _initializer(model, "after")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def _not_a_number(model):
    tensor = _initializer(model, "decay")
    tensor.CopyFrom(numpy_helper.from_array(np.array([np.nan] * 4, np.float32), "decay"))


def _endless(model):
    """Each layer costs next to nothing in the file, and time in every job."""
    last = model.graph.node[-1].output[0]
    for number in range(network.MOST_LAYERS):
        model.graph.node.append(onnx.helper.make_node("Relu", [last], [f"more{number}"]))
        last = f"more{number}"
    model.graph.output[0].name = last


def _property(model, name, value):
    next(one for one in model.metadata_props if one.key == name).value = value


BROKEN = {
    "garbage": lambda: b"no network",
    "empty": lambda: b"",
    "half": lambda: trained()[: len(trained()) // 2],
    "too big": lambda: trained() + b"\0" * network.MOST_BYTES,
    "another node": lambda: broken(lambda m: setattr(m.graph.node[1], "op_type", "Loop")),
    "another domain": lambda: broken(lambda m: setattr(m.graph.node[1], "domain", "evil")),
    "elsewhere": lambda: broken(_external),
    "no end of layers": lambda: broken(_endless),
    "no number": lambda: broken(_not_a_number),
    "a size that lies": lambda: broken(lambda m: _initializer(m, "after").dims.__setitem__(0, 2**40)),
    "fewer keys": lambda: broken(lambda m: _property(m, "operators", json.dumps([making.relu(64).key]))),
    "no keys": lambda: broken(lambda m: _property(m, "operators", json.dumps(["x"] * 26))),
    "another format": lambda: broken(lambda m: _property(m, "opatlas", "2")),
    "another input": lambda: broken(lambda m: setattr(m.graph.input[0], "name", "x")),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_is_not_exactly_a_network_is_refused(how):
    with pytest.raises(LoadError, match="the network"):
        OperatorNetwork.read(BROKEN[how]())


# ---- from the service to a job --------------------------------------------------------------------------


@pytest.fixture
def published(publish_add, signing_key):
    for size in SIZES:
        publish_add(size)
    return publish_network(trained(), None, signing_key)


def test_a_job_fetches_verifies_keeps_and_runs_it(published, job, requests):
    client = job(predictor=Learnt())
    assert client.lookup(add_operator(990)), "at once, though no network is here"
    until(lambda: client.predictor.network is not None)
    asked = ["/api/v1/lookup", "/api/v1/predictor", f"/api/v1/predictor/{published.sha256}"]
    whom = "/api/v1/signers/"  # too, where the network is there before the lookup's answer, which says it
    assert sorted(one for one in requests if one != whom) == asked and requests.count(whom) <= 1
    assert client.lookup(add_operator(991)).source == "service"
    assert all(client.lookup(add_operator(size)).source == "memory" for size in range(992, 1000))
    assert requests.count("/api/v1/lookup") == 2
    client.close()
    later = job(predictor=Learnt(), offline=True)
    later.lookup(add_operator(990))
    later.predictor.related(later.asked(add_operator(990)))
    until(lambda: later.predictor.network is not None)
    assert requests.count("/api/v1/predictor") == 1, "it is the machine's"


def test_from_recorded_jobs_to_a_guess(publish_add, job, organisation, requests):
    for size in SIZES:
        publish_add(size)
    for name, operators in (("adds", map(add_operator, SIZES)), ("relus", map(making.relu, range(64, 74)))):
        with job(job=name, cache=False, predictor=Nothing()) as earlier:
            for one in operators:
                earlier.lookup(one)
    drain_journal()
    call_command("train_predictor", "--organisation", organisation.name, "--epochs", "40")
    client = job(predictor=Learnt())
    client.lookup(add_operator(990))
    until(lambda: client.predictor.network is not None)
    requests.clear()
    assert all(client.lookup(add_operator(size)) for size in SIZES[1:])
    assert requests == ["/api/v1/lookup"]


def _foreign(row, tmp_path):
    """Signed by a key that is not the service's."""
    from opatlas.load.signing import sign_network

    key = new_key(tmp_path / "foreign.pem")
    row.signature, row.signer = sign_network(row.document, key).hex(), "ab" * 32


def _another_document(row, tmp_path):
    row.document = row.document | {"version": 7}


def _too_big(row, tmp_path):
    row.document = row.document | {"size_bytes": network.MOST_BYTES + 1}


def _corrupted(row, tmp_path):
    path = file_path(row.sha256)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def _unsigned(row, tmp_path):
    row.signature = ""


def _longer(row, tmp_path):
    file_path(row.sha256).write_bytes(trained() + b"\0")


@pytest.mark.parametrize("how", [_foreign, _another_document, _too_big, _corrupted, _unsigned, _longer])
def test_what_is_not_as_it_was_signed_is_refused_and_the_job_goes_on(published, job, tmp_path, caplog, how):
    how(published, tmp_path)
    published.save()
    client = job(predictor=Learnt())
    with caplog.at_level(logging.WARNING, "opatlas"):
        assert all(client.lookup(add_operator(size)) for size in SIZES)
        until(lambda: any("network is refused" in one.message for one in caplog.records))
    assert client.predictor.network is None
    assert sum("network" in one.message for one in caplog.records if one.name == "opatlas") == 1


def test_a_key_that_the_job_does_not_trust_is_refused(published, job, tmp_path, caplog):
    other = public_bytes(new_key(tmp_path / "other.pem"))
    client = job(predictor=Learnt(), trust=Trust.in_keys([other]))
    assert client.lookup(add_operator(990))
    until(lambda: any("not trusted" in one.message for one in caplog.records))
    assert client.predictor.network is None


def test_a_kept_file_that_was_changed_is_fetched_again(published, job, requests):
    first = job(predictor=Learnt())
    first.lookup(add_operator(990))
    until(lambda: first.predictor.network is not None)
    first.close()
    (kept,) = (first.home / "networks").glob("*.onnx")
    kept.write_bytes(kept.read_bytes()[:-1])
    again = job(predictor=Learnt())
    again.lookup(add_operator(991))
    until(lambda: again.predictor.network is not None)
    assert requests.count(f"/api/v1/predictor/{published.sha256}") == 2
