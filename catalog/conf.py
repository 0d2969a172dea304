"""The catalogue's part of the configuration, and its fixed limits."""

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
        says="this node's own state: journal, keys, a search's resumable state. Losing it loses no tuning "
        "record",
    )
    store: Path = variable(
        lambda given: given.home / "artifacts",
        "folder",
        "where artifacts are kept; the same on all nodes",
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
        "how long a job may use an answer that is not final before it asks again: exploring may find a "
        "faster one meanwhile",
        least=1,
        most=300,
    )
    max_waiters: int = variable(
        4,
        "requests",
        "requests of one web process that may wait for a result at a time; the next is answered at once",
        least=0,
    )
    warm_bytes: int = variable(
        128 << 20,
        "bytes",
        "how much a web process may cache of answers, to repeat them without a database query; 0: nothing",
        least=0,
    )
    journal_segment_bytes: int = variable(
        8 << 20, "bytes", "a journal file of this size is closed, and a new one begun", least=1
    )
    usage_months: int = variable(
        13,
        "months",
        "how long single hits are kept, beside the current month; of older ones only sums are kept "
        "(`catalog/usage/closing.py`)",
        least=1,
    )
    proxies: int = variable(
        0,
        "proxies",
        "how many reverse proxies stand before the service and name the client; 0: such headers are not "
        "trusted",
        least=0,
    )
    proxy_header: str = variable(
        "",
        "`Forwarded` or `X-Forwarded-For`",
        "the header in which proxies name the client, needed with `OPATLAS_PROXIES`. No client may be "
        "able to set it. Choose `X-Forwarded-For` (with `X-Forwarded-Proto`) only if the proxies drop "
        "names with an underscore, as nginx does: the web server takes `X_Forwarded_For` for the same "
        "name",
        read=_proxy_header,
    )
    alive: Path | None = variable(
        None,
        "folder",
        "where a process gives signs of life to its supervisor (`catalog/alive.py`)",
        shown="none",
    )
    failpoints: str = variable(
        "",
        "faults",
        "only for tests: where processes fail on purpose (`catalog/failpoints.py`)",
        shown="none",
    )
    trace: Path | None = variable(
        None, "file", "only for tests: logs who passed a failpoint, a line each", shown="none"
    )
    scrub_s: float = variable(
        24 * 3600.0,
        "seconds",
        "within this time every stored artifact is read and compared with its digest",
        least=1,
    )
    password: str = variable(
        "",
        "text",
        "the password that the command create_user gives an account, instead of asking for one",
        shown="made, and shown once",
        secret=True,
    )


def conf() -> CatalogConf:
    return process(CatalogConf)


def journal_folder() -> Path:
    return conf().home / "journal"
