"""How the service holds while somebody does it harm.

- ``health_p99_ms``: of ``/healthz``, idle and while eight tenants upload models of 60,000 nodes and the like,
  each as fast as it is let.
- ``foreign_delay_s``: how much later another tenant has its first result while five compile bombs of one are
  evaluated (the most of several lookups), against without.

The real web server, a real worker, SQLite. ``BUDGET_S`` (240) bounds the parts together; a run that was cut
off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.conf import conf
from bench.hostile_tenants import measure_foreign_delay, measure_health
from bench.record import BenchRecord

BUDGET_S = 240.0

PARTS: dict[str, tuple[float, Callable[[float], dict[str, Any]]]] = {
    "health": (0.25, measure_health),
    "foreign delay": (0.75, measure_foreign_delay),
}
"""What is measured: its share of the budget, and how; each gives fields of the result."""


def main() -> None:
    record, budget_s = BenchRecord("service"), conf().budget_s or BUDGET_S
    result: dict[str, Any] = {}
    for name, (share, measure) in PARTS.items():
        result |= record.part(name, lambda share=share, measure=measure: measure(share * budget_s))
    record.finish(result)
