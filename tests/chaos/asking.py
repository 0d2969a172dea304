"""Jobs that ask on and on, as a careful client does: what got no answer is asked again under its name, of
whichever web server, until it has one. Every answer is a line of a trace."""

from __future__ import annotations

import http.client
import json
import random
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.failpoints import append
from opatlas.identity import Setting
from tests.tuning.fakes import TARGET, operator

AGAIN_S = 0.2
TIMEOUT_S = 8.0
NEW, DEADLY = 0.06, 0.03
"""Shares of operators that nobody asked for yet, and of those among them that kill their worker."""


class Asker(threading.Thread):
    """``servers``: host and port of each web server. ``stop`` ends it once its last lookup was answered."""

    def __init__(
        self, number: int, seed: int, servers: Sequence[tuple[str, int]], key: str, trace: Path
    ) -> None:
        super().__init__(name=f"asker{number}", daemon=True)
        self.number, self.trace, self.answered = number, trace, 0
        self._chance = random.Random(f"{seed}/{number}")
        self._servers, self._key = servers, key
        self._sizes = [number]
        self.stop, self.give_up = threading.Event(), threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.05):
            self._lookup()

    def _lookup(self) -> None:
        asked = [self._operator() for _ in range(self._chance.randint(1, 3))]
        body = {
            "target": TARGET.to_json(),
            "setting": Setting(threads=TARGET.cores).to_json(),
            "job": f"chaos {self.number}",
            "operators": [{"graph": one.to_json()} for one in {one.key: one for one in asked}.values()],
        }
        name, tries, refused = uuid.UUID(int=self._chance.getrandbits(128)).hex, 0, []
        while not self.give_up.is_set():
            tries += 1
            status, answer = self._post(json.dumps(body), name)
            if status == 200:
                self._note(answer["results"], tries, refused)
                return
            if 400 <= status < 500 and status != 429:
                refused.append(status)
                self._note([], tries, refused)
                return
            self.give_up.wait(AGAIN_S)

    def _operator(self) -> Any:
        if self._chance.random() < NEW:
            self._sizes.append(self._sizes[-1] + 16)
            return operator("Exp" if self._chance.random() < DEADLY else "Relu", self._sizes[-1])
        return operator("Relu", self._chance.choice(self._sizes))

    def _post(self, body: str, name: str) -> tuple[int, Any]:
        host, port = self._chance.choice(self._servers)
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": "application/json",
            "Idempotency-Key": f'"{name}"',
        }
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", "/api/v1/lookup", body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def _note(self, results: Sequence[dict[str, Any]], tries: int, refused: list[int]) -> None:
        hits = [one for one in results if one["status"] == "hit"]
        charged = sum("price" in one for one in hits)
        line = {
            "charged": charged,
            "free": len(hits) - charged,
            "misses": [one["key"] for one in results if one["status"] == "miss"],
            "operators": len(results),
            "tries": tries,
            "refused": refused,
        }
        append(self.trace, line)
        self.answered += 1
