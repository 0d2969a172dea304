"""How well predictors guess what a job asks next, on models that they never saw.

Models are the ``onnx`` package's light ones and ``onnx_graphs`` (in the order of their graphs; ``MODELS=dir``
takes other ONNX files instead), and the open operator logs, which are sorted by operator name and say nothing
of an order: they are shuffled once, by their own name. Models that share more than a quarter of the smaller's
operators are one *family*. Families are dealt into ``FOLDS`` parts. For each part there is an organisation
whose jobs ran the other parts' models (recorded by lookups, drained, a network trained by the command); it
has asked for the part's operators too, alphabetically and in no job, so that they are known, and their order
is not. One more organisation has run all of them before.

A sample of each part's models is then run by the real client against the live service, each predictor with
caches of its own: how often the job waited for a request, how many there were in all, what came along and was
not asked for, and how long the job's thread was held up by predicting.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.lookup import ServedCatalogue, manage, seeded
from opatlas.client import AskedNext, Client, Learnt, Nothing, RestClient, RestOfModel, Together
from opatlas.errors import InvalidModel
from opatlas.identity import Operator
from tuning.conf import conf as tuning_conf
from tuning.predictor.orders import read_order

FOLDS = 3
OF_A_FAMILY = 0.25
JUDGED = 12
"""Models of each part."""
MOST_SIZE = 200
"""Operators of a model that is judged: others are recorded only."""
AT = (10, 50)
PREDICTORS: Mapping[str, Callable[[Client, Sequence[Operator]], Any]] = {
    "nothing": lambda client, model: Nothing(),
    "asked_next": lambda client, model: AskedNext(),
    "network": lambda client, model: Learnt(),
    "together": lambda client, model: Together(AskedNext(), Learnt()),
    "rest_of_model": lambda client, model: RestOfModel([client.asked(one) for one in model]),
}

Order = list[Operator]


@dataclass
class JudgedRun:
    """One model asked for operator by operator. ``waits``: requests that the job waited for; ``prefetched``
    and ``wasted``: bytes that came along, and those of them that were never asked for; ``held_s``: what the
    job's thread spent on predicting; ``job_s``: all of its lookups."""

    asked: int
    waits: int
    requests: int
    prefetched: int
    wasted: int
    held_s: float
    job_s: float
    recalls: dict[int, float]


def measure_prefetch() -> dict[str, Any]:
    """Per predictor: on families that nobody recorded (``apart``), on models that ran before (``again``)."""
    models = read_models()
    families = families_of(models)
    parts = dealt(families, FOLDS)
    operators = list({one.key: one for order in models.values() for one in order}.values())
    with seeded(operators, 4 * len(operators)) as catalogue, tempfile.TemporaryDirectory() as folder:
        keys = [
            _recorded(catalogue, f"apart {n}", _without(models, part), operators)
            for n, part in enumerate(parts)
        ]
        again = _recorded(catalogue, "again", models, [])
        apart = {
            name: [run for key, part in zip(keys, parts, strict=True) for run in _runs(
                catalogue, key, {model: models[model] for model in sample(part, models)}, name, Path(folder))]
            for name in PREDICTORS
        }  # fmt: skip
        chosen = [model for part in parts for model in sample(part, models)[: JUDGED // FOLDS]]
        before = {
            name: _runs(catalogue, again, {model: models[model] for model in chosen}, name, Path(folder))
            for name in PREDICTORS
        }
    return {
        "models": len(models),
        "families": len(families),
        "operators": len(operators),
        "known_elsewhere": known_elsewhere(models, families),
        "apart": _summary(apart),
        "again": _summary(before),
    }


# ---- the models -----------------------------------------------------------------------------------------


def read_models() -> dict[str, Order]:
    """Operators of each model in its order, by its name; the same one under two names once."""
    found: dict[str, Order] = {}
    seen = set[tuple[str, ...]]()
    for name, path in [*_graphs(), *_logs()]:
        try:
            order = list(map(Operator.from_json, read_order(path.read_bytes()).values()))
        except InvalidModel as error:
            print(f"{name}: {error}", flush=True)
            continue
        if path.suffix == ".json":
            random.Random(name).shuffle(order)
        keys = tuple(sorted(one.key for one in order))
        if len(order) > 1 and keys not in seen:
            seen.add(keys)
            found[name] = order
    return found


def _graphs() -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec("onnx")
    assert spec is not None and spec.origin is not None
    light = Path(spec.origin).parent / "backend/test/data/light"
    for folder in [conf().models] if conf().models else [light, tuning_conf().workloads / "onnx_graphs"]:
        for path in sorted(folder.glob("*.onnx")):
            yield f"onnx/{path.stem}", path


def _logs() -> Iterator[tuple[str, Path]]:
    for path in sorted((tuning_conf().workloads / "oplogs").rglob("*.json")):
        yield f"{path.parent.name}/{path.stem}", path


def families_of(models: Mapping[str, Order]) -> list[list[str]]:
    """Models that share much, directly or by others between them; the largest family first."""
    keys = {name: {one.key for one in order} for name, order in models.items()}
    names, leader = sorted(keys), {name: name for name in keys}

    def led(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            least = min(len(keys[one]), len(keys[other]))
            if len(keys[one] & keys[other]) > OF_A_FAMILY * least:
                leader[led(other)] = led(one)
    found = defaultdict(list)
    for name in names:
        found[led(name)].append(name)
    return sorted(found.values(), key=lambda family: (-len(family), family))


def dealt(families: Sequence[Sequence[str]], parts: int) -> list[list[str]]:
    return [[name for family in families[number::parts] for name in family] for number in range(parts)]


def sample(part: Sequence[str], models: Mapping[str, Order]) -> list[str]:
    """Of a part's models some, all that have an order before those that have none."""
    fit = [name for name in part if 4 <= len(models[name]) <= MOST_SIZE]
    drawn = sorted(
        fit, key=lambda name: (not name.startswith("onnx/"), hashlib.sha256(name.encode()).digest())
    )
    return drawn[:JUDGED]


def known_elsewhere(models: Mapping[str, Order], families: Sequence[Sequence[str]]) -> float:
    """Which share of a model's operators is in any other family: what can be learnt from others' orders."""
    where = defaultdict(set)
    for number, family in enumerate(families):
        for name in family:
            for one in models[name]:
                where[one.key].add(number)
    asked = [len(where[one.key]) > 1 for order in models.values() for one in order]
    return round(sum(asked) / len(asked), 4)


def _without(models: Mapping[str, Order], part: Sequence[str]) -> dict[str, Order]:
    return {name: order for name, order in models.items() if name not in part}


# ---- what was recorded ----------------------------------------------------------------------------------


def _recorded(
    catalogue: ServedCatalogue, name: str, models: Mapping[str, Order], known: Sequence[Operator]
) -> str:
    """An organisation whose jobs ran these models, and that knows these operators; gives its key."""
    home = catalogue.environment
    said = manage(home, "create_api_key", "bench", "--scopes", "lookup", "--organisation", name)
    key = next(word for word in said.split() if word.startswith("opk_"))
    with RestClient(catalogue.url, key, timeout_s=60) as rest:
        names = sorted(one.key for one in known)
        for start in range(0, len(names), 1000):
            rest.lookup(names[start : start + 1000])
    for job, order in models.items():
        with RestClient(catalogue.url, key, job=job, timeout_s=60) as rest:
            rest.lookup([one.key for one in order])
    manage(home, "drain_journal")
    print(manage(home, "train_predictor", "--organisation", name).strip(), flush=True)
    return key


# ---- running them again ---------------------------------------------------------------------------------


def _runs(
    catalogue: ServedCatalogue, key: str, models: Mapping[str, Order], predictor: str, folder: Path
) -> list[JudgedRun]:
    began = time.monotonic()
    runs = [_run(catalogue.url, key, order, predictor, folder) for order in models.values()]
    print(f"{predictor}: {len(runs)} models in {time.monotonic() - began:.0f} s", flush=True)
    return runs


def _run(url: str, key: str, order: Order, predictor: str, folder: Path) -> JudgedRun:
    with _client(url, key, folder) as client:
        client.predictor = PREDICTORS[predictor](client, order)
        _wait_for_network(client, order)
        along, held, requests = dict[str, int](), list[float](), list[bool]()
        ask, predicted, mine = client.rest.ask, client._uncached_related, threading.get_ident()

        def counted(items: Any, **options: Any) -> Any:
            reply = ask(items, **options)
            requests.append(threading.get_ident() == mine)
            sizes = {sha256: len(json.dumps(document)) for sha256, document in reply.manifests.items()}
            for answer in (*reply.related, *reply.next):
                artifact = answer.best["artifact"] if answer.best else ""
                along[answer.key] = len(json.dumps(answer.to_json())) + sizes.get(artifact, 0)
            return reply

        def timed(*given: Any) -> Any:
            start = time.perf_counter()
            try:
                return predicted(*given)
            finally:
                held.append(time.perf_counter() - start)

        client.rest.ask, client._uncached_related = counted, timed  # type: ignore[method-assign]
        asked = [client.asked(one) for one in order]
        job_s = 0.0
        for one in asked:
            start = time.perf_counter()
            answer = client.lookup(one)
            job_s += time.perf_counter() - start
            assert answer.hit, "all are known"
            _settle(client)
        wasted = sum(size for name, size in along.items() if name not in {one.key for one in order})
        client.rest.ask = ask  # type: ignore[method-assign]
        recalls = _recalls(client, predictor, order)
        return JudgedRun(
            len(order), sum(requests), len(requests), sum(along.values()), wasted, sum(held), job_s, recalls
        )


@contextmanager
def _client(url: str, key: str, folder: Path) -> Iterator[Client]:
    with (
        tempfile.TemporaryDirectory(dir=folder) as cache,
        Client(url, key, cache=cache, timeout_s=30) as client,
    ):
        yield client


def _learnt(predictor: Any) -> Learnt | None:
    of = predictor.predictors if isinstance(predictor, Together) else [predictor]
    return next((one for one in of if isinstance(one, Learnt)), None)


def _wait_for_network(client: Client, order: Order) -> None:
    """As a job finds it that is not the machine's first."""
    if (learnt := _learnt(client.predictor)) is not None:
        learnt.related(client.asked(order[0]))
        end = time.monotonic() + 30
        while learnt.network is None:
            assert time.monotonic() < end, "the network did not come"
            time.sleep(0.01)
        learnt._asked.clear()


def _settle(client: Client) -> None:
    """What is predicted and fetched beside the job has ended, as between two operators of a real one."""
    if client._predictions is not None:
        done = threading.Event()
        predict = client._predictions._predict
        client._predictions._predict = lambda asked: []
        client._predictions.later(client.asked("o1:" + "0" * 64), lambda _: done.set())
        done.wait(10)
        client._predictions._predict = predict
    done = threading.Event()
    client.aside(done.set)
    done.wait(30)


def _recalls(client: Client, predictor: str, order: Order) -> dict[int, float]:
    """Of each place but the last: which share of the next k operators is among the k likeliest."""
    one = PREDICTORS[predictor](client, order)
    learnt, kept = _learnt(one), _learnt(client.predictor)
    if learnt is not None and kept is not None:
        learnt.network, learnt._looked_at = kept.network, time.monotonic()
    shares: dict[int, list[float]] = {k: [] for k in AT}
    for place, operator in enumerate(order[:-1]):
        asked = client.asked(operator)
        along: list[str] = []
        if getattr(one, "asks_service", False):
            along = [answer.key for answer in client.rest.ask([{"key": operator.key}], include=["next"]).next]
        own = [client.asked(found).key for found in one.related(asked)]
        turns = [key for pair in zip_all(along, own) for key in pair]
        before = {one.key for one in order[: place + 1]}
        likely = [key for key in dict.fromkeys(turns) if key not in before]
        coming = [one.key for one in order[place + 1 :]]
        for k in AT:
            ahead = set(coming[:k])
            shares[k].append(len(ahead & set(likely[:k])) / len(ahead))
    return {k: statistics.fmean(found) for k, found in shares.items()}


def zip_all(left: Sequence[str], right: Sequence[str]) -> Iterator[Sequence[str]]:
    for number in range(max(len(left), len(right))):
        yield [*left[number : number + 1], *right[number : number + 1]]


def _summary(runs: Mapping[str, Sequence[JudgedRun]]) -> dict[str, Any]:
    """Recalls are means over models; the rest is over all that was asked."""
    found = {}
    for name, of in runs.items():
        asked, wasted = sum(run.asked for run in of), sum(run.wasted for run in of)
        found[name] = {
            **{f"recall_at_{k}": round(statistics.fmean(run.recalls[k] for run in of), 4) for k in AT},
            "requests_saved": round(1 - sum(run.waits for run in of) / asked, 4),
            "all_requests_saved": round(1 - sum(run.requests for run in of) / asked, 4),
            "wasted_bytes": round(wasted / asked),
            "wasted_share": round(
                sum(run.wasted for run in of) / max(1, sum(run.prefetched for run in of)), 4
            ),
            "added_us": round(sum(run.held_s for run in of) / asked * 1e6, 1),
            "job_ms": round(statistics.fmean(run.job_s for run in of) * 1e3, 1),
            "models": len(of),
            "operators": asked,
        }
    return found
