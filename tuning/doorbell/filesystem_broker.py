"""The embedded broker: kombu's file-system transport, made safe for readers beside writers.

kombu writes a message in place, so that a reader can meet half of one, and takes it through the system's
temporary folder. Here a message appears by a rename, and at most one doorbell waits in a queue: a second one
would say nothing that the first does not.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem


class FolderChannel(filesystem.Channel):
    """A queue is the files ``*.<queue>.msg`` of one folder."""

    def _waiting(self, queue: str) -> list[Path]:
        suffix = f".{queue}.msg"
        # A name is "<time>_<uuid>.<queue>.msg", and a queue's name has dots of its own.
        return sorted(
            path for path in Path(self.data_folder_in).iterdir() if path.name.partition(".")[2] == suffix[1:]
        )

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if any(not _expired(path) for path in self._waiting(queue)):
            return
        folder = Path(self.data_folder_out)
        name = f"{time.time_ns():020d}_{uuid.uuid4().hex}"
        part = folder / f"{name}.part"
        part.write_text(json.dumps(payload))
        part.rename(folder / f"{name}.{queue}.msg")

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        taken = Path(self.transport_options["taken_folder"])
        for path in self._waiting(queue):
            mine = taken / f"{path.name}.{os.getpid()}"
            try:
                path.rename(mine)
            except FileNotFoundError:  # another worker was faster
                continue
            try:
                return json.loads(mine.read_text())
            except ValueError:  # a crash of the machine can leave an empty file
                continue
            finally:
                mine.unlink(missing_ok=True)
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._waiting(queue))

    def _purge(self, queue: str) -> int:
        waiting = self._waiting(queue)
        for path in waiting:
            path.unlink(missing_ok=True)
        return len(waiting)


class Transport(filesystem.Transport):
    Channel = FolderChannel  # the name that kombu asks for


def _expired(path: Path) -> bool:
    """Whether a waiting message is so old that its reader will drop it unread."""
    try:
        return time.time() - path.stat().st_mtime > 20
    except FileNotFoundError:
        return True
