"""The other half of stage 2: other sizes for the hand-written register tiles of ``contraction.py``.

MetaSchedule needs hundreds of trials to come near these tiles; a few dozen trials over their sizes often beat
both. What was measured stays in ``tiles.json`` in the work folder, so that the next slice goes on after it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tuning.routes.base import SearchRecord
from tuning.routes.compiler.tvm.blocks import Machine
from tuning.routes.compiler.tvm.contraction import Shape
from tuning.routes.compiler.tvm.known import MOST
from tuning.routes.compiler.tvm.lean import tvm
from tuning.routes.compiler.tvm.schedules import tiled
from tuning.routes.compiler.tvm.transfer import tile_record
from tuning.routes.compiler.tvm.trial import time_module
from tuning.routes.compiler.tvm.untuned import plain

_SEED = 20
_TRIAL_LIMIT_S = 4.0


class TileSearch:
    """Tries one shape after another, each once; skips shapes that come to a schedule tried already."""

    def __init__(self, function: Any, machine: Machine, native: Any, workdir: Path) -> None:
        self.function, self.machine, self.native = function, machine, native
        self.path = workdir / "tiles.json"
        state: dict[str, Any] = (
            json.loads(self.path.read_text()) if self.path.exists() else {"next": 0, "tried": []}
        )
        self.next: int = state["next"]
        self.tried: list[dict[str, Any]] = state["tried"]

    def run(self, deadline: float, wished: Sequence[Mapping[str, Any]] = ()) -> int:
        """Measure until the deadline or the end of the list; returns how many were measured.

        ``wished`` are tiles that did well elsewhere (``transfer.tile_record``): they come first.
        """
        shapes = _shapes()
        known = {json.dumps(one["trace"]) for one in self.tried}
        measured = 0
        for tile in wished:
            if time.monotonic() < deadline - 0.3:
                measured += self._try(*_wish(tile), known, deadline)
        while self.next < len(shapes) and time.monotonic() < deadline - 0.3:
            variant, shape = shapes[self.next]
            self.next += 1
            measured += self._try(variant, shape, known, deadline)
        self._save()
        return measured

    def _try(self, variant: str, shape: Shape, known: set[str], deadline: float) -> int:
        """Measure one shape, unless it cannot be or comes to what is known; 1 where it was measured."""
        made = tiled(self.function, self.machine, variant, shape)
        if made is None:
            return 0
        trace = plain(made.trace.as_json())
        if (text := json.dumps(trace)) in known:
            return 0
        known.add(text)
        tile = tile_record(variant, shape)["tile"]
        self.tried.append({"trace": trace, "run_s": self._measure(made, deadline), "tile": tile})
        self._save()
        return 1

    def _save(self) -> None:
        self.path.write_text(json.dumps({"next": self.next, "tried": self.tried}))

    def _measure(self, made: Any, deadline: float) -> float | None:
        module = tvm.IRModule({"main": made.mod["main"].with_attr("global_symbol", "main")})
        limit_s = min(_TRIAL_LIMIT_S, deadline - time.monotonic() + 0.5)
        return time_module(module, self.native, self.best_s, limit_s, self.machine.threads)

    @property
    def best_s(self) -> float | None:
        return min((one["run_s"] for one in self.tried if one["run_s"] is not None), default=None)

    def best(self) -> Iterator[tuple[Any, float]]:
        """(trace, seconds) of every shape that ran, the best first."""
        ran = [one for one in self.tried if one["run_s"] is not None]
        for one in sorted(ran, key=lambda one: one["run_s"]):
            yield one["trace"], one["run_s"]

    def records(self) -> list[SearchRecord]:
        """The best shapes as records."""
        ran = sorted((one for one in self.tried if one["run_s"] is not None), key=lambda one: one["run_s"])
        return [
            SearchRecord({"tile": one["tile"]}, round(one["run_s"] * 1e6, 3))
            for one in ran[:MOST]
            if "tile" in one
        ]


def _wish(tile: Mapping[str, Any]) -> tuple[str, Shape]:
    shape = dict(tile)
    return shape.pop("variant"), Shape(**shape)


def _shapes() -> list[tuple[str, Shape]]:
    """The default shapes first, then the others in an order that is random but always the same."""
    first = [("packed", Shape()), ("flat", Shape())]
    others = [
        (variant, Shape(height, vectors, columns, rows, inside))
        for variant, height, vectors, columns, rows, inside in product(
            ("packed", "flat"), (0, 4, 8), (1, 2, 3, 4, 6), (64, 256, 1024), (32, 96, 384), (False, True)
        )
    ]
    random.Random(_SEED).shuffle(others)
    return [*first, *others]
