"""How the service holds while somebody does it harm, and how soon it is back.

- ``health_p99_ms``: of ``/healthz``, idle and while eight tenants upload models of 60,000 nodes and the like,
  each as fast as it is let.
- ``foreign_delay_s``: how much later another tenant has its first result while five compile bombs of one are
  evaluated (the most of several lookups), against without.
- ``restart_s``: by process, until its work is done again after SIGKILL (:mod:`bench.service.restarts`).
- ``lookups_lost`` during an upgrade by one version, by engine (:mod:`bench.service.upgrade`).
- ``bytes_a_day`` and ``bytes_a_day_after_retention`` by engine, at a stated load, and ``retention_s``
  (:mod:`bench.service.growth`).
- ``backup_s`` and ``restore_s`` by engine, of 1M implementations (:mod:`bench.service.backup`).

The real web server, a real worker, SQLite. ``BUDGET_S`` (240) bounds the first two together; a run that was
cut off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.conf import conf
from bench.record import BenchRecord
from bench.servers import MissingProgram

BUDGET_S = 240.0


def by_engine(measure: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Figures of both engines, by field; one that is not installed says so."""
    found: dict[str, dict[str, Any]] = {}
    for engine in ("sqlite", "postgres"):
        try:
            found[engine] = measure(engine)
        except MissingProgram as missing:
            found[engine] = {"missing": str(missing)}
    fields = {field for figures in found.values() for field in figures}
    return {
        field: {engine: figures[field] for engine, figures in found.items() if field in figures}
        for field in sorted(fields)
    }


def parts() -> dict[str, tuple[float, Callable[[float], dict[str, Any]]]]:
    """What is measured: its share of the budget, and how; each gives fields of the result."""
    # Some of these are programs too, which run for themselves: their package does not import them.
    from bench.service.backup import measure_backup
    from bench.service.growth import measure_growth
    from bench.service.hostile_tenants import measure_foreign_delay, measure_health
    from bench.service.restarts import measured
    from bench.service.upgrade import measure_upgrade

    return {
        "health": (0.25, measure_health),
        "foreign delay": (0.75, measure_foreign_delay),
        "restarts": (0.0, lambda _: {"restart_s": measured()}),
        "upgrade": (0.0, lambda _: by_engine(measure_upgrade)),
        "growth": (0.0, lambda _: by_engine(measure_growth)),
        "backups": (0.0, lambda _: by_engine(measure_backup)),
    }


def main() -> None:
    record, budget_s = BenchRecord("service"), conf().budget_s or BUDGET_S
    result: dict[str, Any] = {}
    for name, (share, measure) in parts().items():
        result |= record.part(name, partial(measure, share * budget_s))
    record.finish(result)
