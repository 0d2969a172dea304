"""A served catalogue that a client can ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opatlas.client import Client, RestClient, ServiceError
from opatlas.client.predict import predicting
from opatlas.identity import Operator, Setting, detect_target
from opatlas.load.signing import new_key
from tests.catalog.conftest import own_folders  # noqa: F401 - used by every test here
from tests.opatlas.load.kernels import ADD, PREPARED_ADD, add_operator, build


@pytest.fixture(autouse=True)
def predictors_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that a busy host lets begin late is no predictor that takes long."""
    monkeypatch.setattr(predicting, "PREDICT_S", 20.0)
    monkeypatch.setattr(predicting, "LAST_S", 20.0)


@pytest.fixture
def signing_key(tmp_path: Path) -> Any:
    return new_key(tmp_path / "worker" / "key.pem")


@pytest.fixture
def publish_add(transactional_db: None, tmp_path: Path, signing_key: Any) -> Callable[..., Any]:
    """``publish_add(features=("avx512",))``: an addition in C for this machine, published and signed."""
    from catalog.best.publishing import Publication, publish
    from catalog.registry import register_operator, register_setting, register_target
    from opatlas.evidence import Evidence
    from opatlas.identity import Setting

    def make(
        size: int = 1000,
        source: str = ADD,
        operator: Operator | None = None,
        threads: int = 1,
        **manifest: Any,
    ) -> Any:
        folder = tmp_path / f"build{size}"
        folder.mkdir(exist_ok=True)
        operator = operator or add_operator(size)
        made = build(folder, source, operator, threads=threads, **manifest)
        evidence = Evidence(10.0, 0.1, 20.0, 2.0, 1.98, 2.02)
        return publish(
            Publication(
                operator=register_operator(operator),
                target=register_target(detect_target()),
                setting=register_setting(Setting(threads=threads)),
                route="cpp", method="manual", label="add", candidate={"size": size}, manifest=made,
                folder=folder, versions={}, evidence=evidence, signing_key=signing_key,
            )
        )  # fmt: skip

    return make


@pytest.fixture
def publish_prepared_add(publish_add: Callable[..., Any]) -> Callable[[], Any]:
    """The same for a weight, which the kernel packs."""
    return lambda: publish_add(source=PREPARED_ADD, operator=add_operator(constant=True))


@pytest.fixture
def publish_all(transactional_db: None) -> Callable[[Iterable[Operator]], None]:
    """``publish_all(operators)``: for each a result for this machine, which nobody can load."""
    from catalog.best.publishing import publish
    from catalog.registry import register_operator, register_setting, register_target
    from tests.catalog import making

    def make(operators: Iterable[Operator]) -> None:
        target, setting = register_target(detect_target()), register_setting(Setting(threads=1))
        for operator in operators:
            place = {"operator": register_operator(operator), "target": target, "setting": setting}
            publish(making.new_result(place, "torch", 2.0, needs={}))

    return make


@pytest.fixture
def client(live_server: Any, make_key: Callable[..., str]) -> Iterator[RestClient]:
    with RestClient(live_server.url, make_key("lookup", "admin"), setting=Setting(threads=1)) as connected:
        yield connected


@pytest.fixture
def job(live_server: Any, make_key: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """``job(offline=True)``: a client of the served catalogue; all of a test share one cache and one key."""
    key, made = make_key("lookup", "admin"), []

    def make(**options: Any) -> Client:
        given = {"setting": Setting(threads=1), "cache": tmp_path / "cache", "timeout_s": 20.0}
        made.append(Client(live_server.url, key, **(given | options)))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that the service was asked for, in order."""
    from django.core.handlers.wsgi import WSGIHandler

    seen, answer = list[str](), WSGIHandler.get_response

    def counted(self: Any, request: Any) -> Any:
        seen.append(request.path)
        return answer(self, request)

    monkeypatch.setattr(WSGIHandler, "get_response", counted)
    return seen


@pytest.fixture
def answer_lost(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], None]:
    """``answer_lost(client)``: it reports, the service takes it, and the connection breaks before its
    answer."""

    def lose(client: Client) -> None:
        call = client.rest.call

        def lost(*given: Any) -> None:
            call(*given)
            raise ServiceError("The connection broke.")

        with monkeypatch.context() as patch:
            patch.setattr(client.rest, "call", lost)
            client._report()

    return lose


@pytest.fixture
def careless(monkeypatch):
    """The service hands out what lies in its store without a look."""
    monkeypatch.setattr("catalog.api.artifacts.check_whole", lambda *_: None)
    monkeypatch.setattr("catalog.lookup.lookups.find_damaged", lambda *_: set())
