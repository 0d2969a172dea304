"""What of the service can be set, as far as the catalogue reads it; and its fixed limits."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import process, variable
from opatlas.memory import total_bytes

MAX_OPERATORS = 1024
"""Operators in one lookup; as many related ones may come with them."""

MAX_BODY_BYTES = 1 << 20
"""Bytes of one API request, uploads of models aside."""

MAX_WAIT_S = 30.0
"""The longest that a lookup may ask to wait."""

WAIT_POLL_S = 0.1


def _at_most_60(text: str) -> str:
    if len(text) > 60:
        raise ValueError("It is a name of at most 60 characters.")
    return text


def _proxy_header(text: str) -> str:
    if text not in ("", "Forwarded", "X-Forwarded-For"):
        raise ValueError("It is Forwarded or X-Forwarded-For.")
    return text


@dataclass(frozen=True, kw_only=True)
class CatalogConf:
    home: Path = variable(
        Path(__file__).parents[1] / "var",
        "folder",
        shown="`var` in this tree",
        says="this node's own state: journal, keys, a search's resumable state (losing that loses no "
        "tuning record)",
    )
    store: Path = variable(
        lambda given: given.home / "artifacts",
        "folder",
        "artifacts; the same on all nodes",
        shown="`artifacts` below `OPATLAS_HOME`",
    )
    node: str = variable(
        lambda given: socket.gethostname()[:60],
        "name",
        "this machine's name in the journal, at most 60 characters",
        shown="the host's name",
        read=_at_most_60,
    )
    max_operator_bytes: int = variable(
        lambda given: total_bytes() // 4,
        "bytes",
        "the most memory that one operator may need: reference, default and candidate each hold its tensors",
        shown="a quarter of the memory that the machine or the control group gives",
        least=1,
    )
    open_entry_s: float = variable(
        10.0,
        "seconds",
        "how long a job may use an answer that is not final without asking again: a faster one may be found "
        "meanwhile",
        least=1,
        most=300,
    )
    max_waiters: int = variable(
        4,
        "requests",
        "of one web process may wait for an answer at a time; one more is answered at once",
        least=0,
    )
    warm_bytes: int = variable(
        128 << 20,
        "bytes",
        "that a web process may remember of answers, to give them again without a statement; 0: none",
        least=0,
    )
    journal_segment_bytes: int = variable(
        8 << 20, "bytes", "a journal file that has grown to this size is closed and a new one begun", least=1
    )
    usage_months: int = variable(
        13,
        "months",
        "that hits are kept one by one, beside the current one; of older ones their sums are kept "
        "(`catalog/usage/closing.py`)",
        least=1,
    )
    proxies: int = variable(
        0,
        "proxies",
        "stand before it and say who asked; 0: no header is believed on that",
        least=0,
    )
    proxy_header: str = variable(
        "",
        "`Forwarded` or `X-Forwarded-For`",
        "the header in which they say it, and which they let no client write; needed with `OPATLAS_PROXIES`. "
        "`X-Forwarded-For` (with `X-Forwarded-Proto`) only where they drop names with an underscore, as "
        "nginx does: the web server takes `X_Forwarded_For` for the same name",
        read=_proxy_header,
    )
    alive: Path | None = variable(
        None,
        "folder",
        "where a process gives signs of life to who watches it (`catalog/alive.py`)",
        shown="none",
    )
    failpoints: str = variable(
        "",
        "faults",
        "for tests of this service: places where its processes fail (`catalog/failpoints.py`)",
        shown="none",
    )
    trace: Path | None = variable(
        None, "file", "for tests of this service: who passed such a place, a line each", shown="none"
    )
    scrub_s: float = variable(
        24 * 3600.0,
        "seconds",
        "within which every stored artifact is read and compared with what was stored",
        least=1,
    )
    password: str = variable(
        "",
        "text",
        "what the command create_user gives an account, unless it asks for it",
        shown="made, and shown once",
        secret=True,
    )


def conf() -> CatalogConf:
    return process(CatalogConf)


def journal_folder() -> Path:
    return conf().home / "journal"
