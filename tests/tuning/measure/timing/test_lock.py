"""The machine's lock: measurements alone, builds together, nobody overtaken for ever."""

from __future__ import annotations

import threading
from pathlib import Path

from tuning.measure.timing.lock import MachineLock

LONG_S = 60.0
"""In which whoever may enter has entered, on any host."""


def enters(context: object, within_s: float = LONG_S) -> bool:
    """Whether the lock can be taken now (in a thread, since waiting blocks)."""
    entered = threading.Event()

    def take() -> None:
        with context:  # type: ignore[attr-defined]
            entered.set()

    threading.Thread(target=take, daemon=True).start()
    return entered.wait(within_s)


def test_builds_run_beside_builds(tmp_path: Path) -> None:
    first, second = MachineLock(tmp_path / "lock"), MachineLock(tmp_path / "lock")
    with first.building():
        assert enters(second.building())


def test_a_measurement_waits_for_builds_and_measurements(tmp_path: Path) -> None:
    first, second, third = (MachineLock(tmp_path / "lock") for _ in range(3))
    with first.building():
        assert not enters(second.measuring(), within_s=0.2)
    with first.measuring():
        assert not enters(third.building(), within_s=0.2)


def test_a_waiting_measurement_is_not_overtaken(tmp_path: Path) -> None:
    builder, measurer, late = (MachineLock(tmp_path / "lock") for _ in range(3))
    order: list[str] = []
    waiting = threading.Thread(target=lambda: _enter(measurer.measuring(), order, "measurement"))
    with builder.building():
        waiting.start()
        while not _gate_is_held(tmp_path / "lock.gate"):
            pass
        overtaker = threading.Thread(target=lambda: _enter(late.building(), order, "late build"))
        overtaker.start()
    waiting.join(LONG_S)
    overtaker.join(LONG_S)
    assert order == ["measurement", "late build"]


def _enter(context: object, order: list[str], name: str) -> None:
    with context:  # type: ignore[attr-defined]
        order.append(name)


def _gate_is_held(path: Path) -> bool:
    import fcntl

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
