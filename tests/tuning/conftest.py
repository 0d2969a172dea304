"""A worker's workshop over fakes, and rows to explore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from opatlas.identity import Setting
from tests.tuning import fakes
from tuning.queue import promote
from tuning.worker import leader, stopping
from tuning.worker.process import Tools, WorkerProcess


@pytest.fixture
def tenant_api(tenant: Any, api_with: Any) -> Any:
    """The tenant's client with the scopes lookup and operate."""
    from catalog.people.keys import create_api_key

    return api_with(create_api_key(tenant, "theirs", ["lookup", "operate"])[1])


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process remembers between ticks, forgotten between tests; what ships is left out; and no bell
    leaves the process."""
    from tuning.doorbell import bell
    from tuning.explore import trial_history
    from tuning.queue import rates

    monkeypatch.setattr(trial_history, "_known", {})
    monkeypatch.setattr(trial_history, "given_odds", tuple)  # a catalogue begins with nothing
    monkeypatch.setattr(rates, "_lately", None)
    monkeypatch.setattr(leader, "_holder", None)
    monkeypatch.setattr(leader, "_rarely_at", 0.0)
    monkeypatch.setattr(promote, "_gains", (-1e9, {}))
    monkeypatch.setattr(bell.bell, "ring", lambda names: None)
    stopping.forget()
    yield
    stopping.forget()


@pytest.fixture
def target_row(db: None) -> Any:
    """A target that a live worker serves."""
    from catalog.models import Target
    from catalog.registry import register_target

    row = register_target(fakes.TARGET)
    Target.objects.filter(pk=row.pk).update(served_until=timezone.now() + timedelta(minutes=5))
    row.refresh_from_db()
    return row


@pytest.fixture
def setting() -> Setting:
    return Setting(threads=2)


@pytest.fixture
def make_miss(target_row: Any, setting: Setting) -> Callable[..., Any]:
    """``make_miss("Conv", size=64, calls=3, related=True)``: a row of the collect queue."""
    from catalog.models import Miss
    from catalog.models import Operator as OperatorRow
    from catalog.registry import register_setting

    def make(op: str = "Relu", size: int = 1024, **columns: Any) -> Any:
        operator = fakes.operator(op, size)
        row, _ = OperatorRow.objects.get_or_create(
            key=operator.key,
            defaults={
                "graph": operator.to_json(), "op_type": op, "summary": f"{op} {size}", "dtype": "float32",
                "flops": size, "bytes_moved": 8 * size,
            },
        )  # fmt: skip
        return Miss.objects.create(
            operator=row,
            target=columns.pop("target", target_row),
            setting=register_setting(setting),
            **columns,
        )

    return make


@pytest.fixture
def live_worker(target_row: Any) -> Any:
    """Another process that serves the target, as far as the database knows."""
    from tuning.models import Worker

    return Worker.objects.create(
        name="live", host="here", pid=1, target=target_row,
        last_seen_at=timezone.now() + timedelta(minutes=5), memory_bytes=8 << 30, warm=True,
    )  # fmt: skip


@pytest.fixture
def make_exploration(make_miss: Callable[..., Any]) -> Callable[..., Any]:
    """``make_exploration("Conv", stage=1)``: a promoted miss, queued."""
    from tuning.models import Exploration

    def make(op: str = "Relu", size: int = 1024, **columns: Any) -> Any:
        miss = make_miss(op, size, state="promoted")
        return Exploration.objects.create(
            operator=miss.operator, target=miss.target, setting=miss.setting, capability="cpu.zen3",
            asked_at=timezone.now(), **columns,
        )  # fmt: skip

    return make


@pytest.fixture
def worker_with(target_row: Any, tmp_path: Path, configure: Any) -> Callable[..., WorkerProcess]:
    """``worker_with(route, …)``: a worker over fakes in this process, without its threads."""
    # Its threads give the signs of life: without them it is alive as long as a test on a busy host takes.
    configure(home=tmp_path, store=tmp_path / "artifacts", served_s=600.0)

    def make(*routes: Any, name: str = "w1", default: Any = fakes.EAGER) -> WorkerProcess:
        tools = Tools(
            routes=(*([default] if default else []), *routes),
            default_candidate=lambda o, t, s: (
                (default, next(default.candidates(o, t, s, None)))
                if default and default.supports(o, s)
                else None
            ),
            laboratory=fakes.FakeLaboratory,  # type: ignore[arg-type]
            target=lambda: fakes.TARGET,
        )
        worker = WorkerProcess(name, tools)
        worker._enter_when_possible()
        worker._warm_up()
        worker._say("")
        return worker

    return make
