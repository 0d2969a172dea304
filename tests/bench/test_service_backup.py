"""The bench of backups on a small catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.service import backup as service_backup


@pytest.mark.slow
@pytest.mark.nightly
def test_it_times_a_backup_and_restoring_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_backup, "HOME", tmp_path)
    found = service_backup.measure_backup("sqlite", implementations=200)
    assert found["implementations"] == 200
    assert found["backup_s"] > 0 and found["restore_s"] > 0 and found["backup_mb"] > 1
    assert not list(tmp_path.rglob("backup.json")), "nothing of it is left"
