"""Clients that go on and on, as careful ones do: what got no answer is asked again, of whichever web server,
until it has one. Jobs look operators up; every answer is a line of a trace."""

from __future__ import annotations

import http.client
import json
import random
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from catalog.failpoints import append
from opatlas.identity import Setting
from tests.tuning.fakes import TARGET, operator

AGAIN_S = 0.2
TIMEOUT_S = 8.0
NEW, DEADLY = 0.06, 0.03
"""Shares of operators that nobody asked for yet, and of those among them that kill their worker."""


class CarefulClient(threading.Thread):
    """``servers``: host and port of each web server. ``stop`` ends it once what it began has come to its end,
    ``give_up`` at once."""

    again: frozenset[int] = frozenset({429})
    """What a client asks again after, beside the servers' own failures."""

    def __init__(
        self, name: str, seed: int, servers: Sequence[tuple[str, int]], key: str, trace: Path
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._chance = random.Random(f"{seed}/{name}")
        self._servers, self._key, self._trace = servers, key, trace
        self.stop, self.give_up = threading.Event(), threading.Event()

    def run(self) -> None:
        while not self.stop.wait(self.pause_s()):
            self.once()

    def once(self) -> None:
        """One thing, from its beginning to its end."""
        raise NotImplementedError

    def pause_s(self) -> float:
        """Between two things."""
        return 0.05

    def until_answered(
        self, method: str, path: str, body: str | bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, int]:
        """Status, answer, and how often it was asked; status 0 where that was given up."""
        tries = 0
        while not self.give_up.is_set():
            tries += 1
            status, answer = self._ask(method, path, body, headers or {})
            if 200 <= status < 500 and status not in self.again:
                return status, answer, tries
            self.give_up.wait(AGAIN_S)
        return 0, None, tries

    def note(self, line: Mapping[str, Any]) -> None:
        append(self._trace, line)

    def _ask(self, method: str, path: str, body: str | bytes, headers: Mapping[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self._chance.choice(self._servers), timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self._key}", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()


class Asker(CarefulClient):
    """A job that asks for operators, some of them for the first time."""

    def __init__(self, number: int, *about: Any) -> None:
        super().__init__(f"asker{number}", *about)
        self.number = number
        self._sizes = [number]

    def once(self) -> None:
        asked = [self._operator() for _ in range(self._chance.randint(1, 3))]
        body = {
            "target": TARGET.to_json(),
            "setting": Setting(threads=TARGET.cores).to_json(),
            "job": f"chaos {self.number}",
            "operators": [{"graph": one.to_json()} for one in {one.key: one for one in asked}.values()],
        }
        name = uuid.UUID(int=self._chance.getrandbits(128)).hex
        headers = {"Content-Type": "application/json", "Idempotency-Key": f'"{name}"'}
        status, answer, tries = self.until_answered("POST", "/api/v1/lookup", json.dumps(body), headers)
        if status == 200:
            self._note(answer["results"], tries, [])
        elif status:
            self._note([], tries, [status])

    def _operator(self) -> Any:
        if self._chance.random() < NEW:
            self._sizes.append(self._sizes[-1] + 16)
            return operator("Exp" if self._chance.random() < DEADLY else "Relu", self._sizes[-1])
        return operator("Relu", self._chance.choice(self._sizes))

    def _note(self, results: Sequence[dict[str, Any]], tries: int, refused: list[int]) -> None:
        hits = [one for one in results if one["status"] == "hit"]
        charged = sum("price" in one for one in hits)
        self.note(
            {
                "charged": charged,
                "free": len(hits) - charged,
                "misses": [one["key"] for one in results if one["status"] == "miss"],
                "operators": len(results),
                "tries": tries,
                "refused": refused,
            }
        )
