"""Clients that upload models, some of them made to do harm, cancel one now and then, and ask for each until
it has ended. What became of each is a line of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

from onnx import helper

from tests.chaos.asking import CarefulClient
from tests.tuning.fakes import TARGET
from tests.tuning.graph import making

MOST_NODES, MEMORY_MIB = 200, 400
"""What the cluster grants an upload: little, so that hostile ones cost the machine little."""

OPEN = ("receiving", "waiting", "running")
"""States of an upload that has not ended."""

CANCELLED, HOSTILE = 0.15, 0.3
"""Shares of uploads."""

LOOK_S = 0.3
SIZES = 40
"""Of operators in models: few, so that what is explored for the jobs has room."""


@dataclass(frozen=True)
class ModelBytes:
    """What is uploaded: a model of so many operators, or what must be refused with these words."""

    kind: str
    body: bytes
    operators: int = 0
    refused: str = ""


class Uploader(CarefulClient):
    """One upload after another. A name is given once, however often its upload is tried."""

    again = frozenset({408, 429})

    def __init__(self, number: int, *about: Any) -> None:
        super().__init__(f"uploader{number}", *about)
        self._given = 0

    def pause_s(self) -> float:
        return self._chance.uniform(0.5, 2.5)

    def once(self) -> None:
        self._given += 1
        given, name = self._model(), f"{self.name} {self._given}"
        kind = "application/json" if given.body[:1] == b"[" else "application/octet-stream"
        query = urlencode({"name": name, "target": TARGET.key, "wait_s": 0})
        status, answer, tries = self.until_answered(
            "POST", f"/api/v1/models/?{query}", given.body, {"Content-Type": kind}
        )
        if not status:
            return
        line = {"name": name, "kind": given.kind, "operators": given.operators, "refused": given.refused,
                "status": status, "tries": tries, "cancelled": False}  # fmt: skip
        if status == 202:
            address = answer["address"]
            line["cancelled"] = cancelled = self._chance.random() < CANCELLED
            if cancelled and not self.give_up.wait(self._chance.uniform(0, 1)):
                self.until_answered("POST", f"{address}/cancel")
            answer = answer | (self._ended(address) or {})
        names = ("id", "state", "reason", "operators_done", "model", "error")
        self.note(line | {part: answer[part] for part in names if part in answer})

    def _model(self) -> ModelBytes:
        if self._chance.random() < HOSTILE:
            return self._chance.choice(hostile())
        first, count = self._chance.randrange(1, SIZES - 8), self._chance.randint(1, 8)
        return ModelBytes("model", _relus(range(first, first + count)), count)

    def _ended(self, address: str) -> dict[str, Any] | None:
        """The upload at its end; one that is there no more, as lost."""
        while True:
            status, answer, _ = self.until_answered("GET", address)
            if status == 200 and answer["state"] not in OPEN:
                return dict(answer)
            if status != 200:
                return {"state": "lost", "reason": str(status)} if status else None
            self.give_up.wait(LOOK_S)


@cache
def hostile() -> Sequence[ModelBytes]:
    """Too many nodes, brackets within brackets, and a list of objects that takes more memory than it may."""
    many, objects = _relus([7] * (MOST_NODES + 1)), b"[" + b"{}," * 5_000_000 + b"{}]"
    return (
        ModelBytes("too many nodes", many, refused=f"at most {MOST_NODES} are accepted"),
        ModelBytes("nested", b"[" * 100_000, refused="no valid JSON"),
        ModelBytes("bomb", objects, refused=f"more than {MEMORY_MIB} MiB of memory"),
    )


def _relus(sizes: Sequence[int]) -> bytes:
    """A model of one Relu of each size."""
    nodes = [helper.make_node("Relu", [f"x{n}"], [f"y{n}"]) for n in range(len(sizes))]
    shapes = {f"x{n}": [size] for n, size in enumerate(sizes)}
    return making.model(nodes, shapes, [f"y{n}" for n in range(len(sizes))]).SerializeToString()
