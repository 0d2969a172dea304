"""Predictions by a network that the service trained on recorded jobs: fetched, verified, cached, run beside
the job."""

from __future__ import annotations

import hashlib
import json
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.client.asking import Asked, canonical_graph
from opatlas.client.predict.network import MOST_BYTES, OperatorNetwork, features
from opatlas.errors import CallerError, LoadError, OpatlasError
from opatlas.own_folder import own_folder

PREDICTED = 32
LOOK_AGAIN_S = 3600.0
"""How often a service is asked for a newer network."""
MOST_ROWS = 4096
"""The most operators whose names the network does not know."""


class Learnt:
    """Predicts with the service's newest network for the caller's organisation; nothing until that is
    here."""

    def __init__(self) -> None:
        self.network: OperatorNetwork | None = None
        self._client: Any = lambda: None
        self._looked_at = -LOOK_AGAIN_S
        self._last: deque[np.ndarray] = deque()
        self._asked: set[str] = set()
        self._rows: dict[str, np.ndarray] = {}

    def begin(self, client: Any) -> None:
        """``client`` fetches it, and knows whom to trust."""
        self._client = weakref.ref(client)

    def related(self, asked: Asked) -> Sequence[Any]:
        if time.monotonic() - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            if (client := self._client()) is not None:
                client.aside(partial(self._fetch, weakref.ref(client)))
        network = self.network
        if network is None:
            return ()
        self._asked.add(asked.key)
        if (row := self._row_of(network, asked)) is not None:
            self._last.appendleft(row)
            while len(self._last) > len(network.decay):
                self._last.pop()
        likely = network.likeliest(list(self._last), len(self._asked) - 1, PREDICTED + len(self._asked))
        return [key for key in likely if key not in self._asked][:PREDICTED]

    def _row_of(self, network: OperatorNetwork, asked: Asked) -> np.ndarray | None:
        if (place := network.places.get(asked.key)) is not None:
            return network.after[place]
        if asked.key not in self._rows and asked.document is not None:
            if len(self._rows) >= MOST_ROWS:
                self._rows.clear()
            self._rows[asked.key] = network.embed(features(canonical_graph(asked.document))[None])[0]
        return self._rows.get(asked.key)

    def _fetch(self, client: weakref.ref[Any]) -> None:
        """The background work: load the cached one first, then a newer one."""
        if (of := client()) is None:
            return
        shelf = NetworkShelf(of)
        found = shelf.kept()
        self.network = found or self.network
        if of.offline or of.snapshot is not None:
            return
        if (newer := shelf.newest()) is not None:
            self.network, self._last, self._rows = newer, deque(), {}


class NetworkShelf:
    """Where a client gets its network: its folder, and the service. If anything is wrong it is logged, and
    there is no network."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.sha256 = ""  # of the one that is kept
        service = client.store.service if client.store is not None else b""
        self.path: Path = client.home / "networks" / f"{service.hex() or 'none'}.json"

    def kept(self) -> OperatorNetwork | None:
        """The network fetched last, verified again."""
        if self.client.store is None:
            return None
        try:
            said = json.loads(self.path.read_bytes())
            network = self._verified(said, self.path.with_suffix(".onnx").read_bytes())
        except (OSError, ValueError, KeyError, TypeError, OpatlasError):
            return None
        self.sha256 = said["document"]["sha256"]
        return network

    def newest(self) -> OperatorNetwork | None:
        """The service's network; None if it is the cached one, or is refused, which is logged."""
        try:
            said = self.client.rest.call("GET", "/api/v1/predictor")
            size, sha256 = int(said["document"]["size_bytes"]), str(said["document"]["sha256"])
            if sha256 == self.sha256:
                return None
            if not 0 < size <= MOST_BYTES:
                raise LoadError(f"it has no byte, or more than {MOST_BYTES >> 20} MiB")
            data = self.client.rest.read(f"/api/v1/predictor/{sha256}", size)
            network = self._verified(said, data)
        except CallerError:  # an older service's, or none was trained
            return None
        except (KeyError, TypeError, ValueError, OpatlasError) as error:
            self.client.tell(f"The service's network is refused: {error}.")
            return None
        self._keep(said, data)
        return network

    def _verified(self, said: Mapping[str, Any], data: bytes) -> OperatorNetwork:
        document, signer = said["document"], str(said["signer"])
        self.client.artifacts.trusted(signer).check_network(document, str(said["signature"]), signer)
        if hashlib.sha256(data).hexdigest() != document["sha256"]:
            raise LoadError("the network's bytes are not those that were signed")
        return OperatorNetwork.read(data)

    def _keep(self, said: Mapping[str, Any], data: bytes) -> None:
        if self.client.store is None:
            return
        try:
            own_folder(self.client.home)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(said).encode()
            for path, content in ((self.path.with_suffix(".onnx"), data), (self.path, text)):
                part = path.with_name(f"{path.name}.{time.time_ns()}.part")
                part.write_bytes(content)
                part.replace(path)
        except OSError as error:
            self.client.tell(f"The network cannot be kept: {error}.")
