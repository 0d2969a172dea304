"""``python -m bench [NAME]``: measure, print, write var/bench/NAME.json."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import (
    client,
    contest,
    coverage,
    graph,
    lookup,
    models,
    pages,
    reproduced,
    sandbox,
    service,
    streams,
    trials,
    wire,
)

BENCHES: dict[str, Callable[[], None]] = {
    "lookup": lookup.main,
    "client": client.main,
    "models": models.main,
    "graph": graph.main,
    "pages": pages.main,
    "contest": contest.main,
    "coverage": coverage.main,
    "sandbox": sandbox.main,
    "service": service.main,
    "streams": streams.main,
    "trials": trials.main,
    "wire": wire.main,
    "reproduced": reproduced.main,  # last: the others fill its half hour
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"There is no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}.")
        return 2
    for name in names or list(BENCHES):
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
