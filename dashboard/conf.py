"""The web service's configuration: addresses, limits, mail, money. Django's settings import it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from opatlas.conf import process, variable

Rate = tuple[int, int] | None
"""So many requests in so many seconds; None: no limit."""

_PERIODS_S = {"s": 1, "min": 60, "h": 3600}


def parse_rate(text: str) -> Rate:
    """``"600/min"`` as (600, 60); ``off`` is None; anything else a ValueError that says so."""
    if text.strip() == "off":
        return None
    number, _, unit = text.strip().partition("/")
    if not number.isdigit() or int(number) < 1 or unit not in _PERIODS_S:
        raise ValueError(f"A rate is like 600/min (s, min or h) or off, not {text!r}.")
    return int(number), _PERIODS_S[unit]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _database(text: str) -> str:
    if text and text.split("://")[0] not in ("sqlite", "postgres", "postgresql"):
        raise ValueError("It begins with sqlite:// or postgres://.")
    return text


def _level(text: str) -> str:
    if text.upper() not in logging.getLevelNamesMapping():
        raise ValueError("It is DEBUG, INFO, WARNING or ERROR.")
    return text.upper()


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text and text not in words:
            raise ValueError(f"It is {' or '.join(words)}, or not set.")
        return text

    return read


@dataclass(frozen=True, kw_only=True)
class DashboardConf:
    port: int = variable(
        8000, "port", "the port where `manage.py serve` answers", name="PORT", least=1, most=65535
    )
    silent_s: float = variable(
        30.0,
        "seconds",
        "`make run` ends and restarts a process that has given no sign of life for so long",
        least=1,
    )
    hosts: tuple[str, ...] = variable(
        "127.0.0.1,localhost,[::1]",
        "names",
        "host names under which the service answers, separated by commas",
        read=_listed,
    )
    database_url: str = variable(
        "",
        "URL",
        "the database: `postgres://user@host/name` or `sqlite:////path`",
        name="DATABASE_URL",
        read=_database,
        secret=True,
        shown="SQLite below `OPATLAS_HOME`",
    )
    secret_key: str = variable(
        "",
        "text",
        "Django's secret key; the same on all web nodes",
        secret=True,
        shown="made, and kept below `OPATLAS_HOME`",
    )
    debug: bool = variable(
        False,
        "1 or 0",
        "1: Django's error pages for developers. Never where others can reach the service",
        shown="0",
    )
    https: bool = variable(
        False,
        "1 or 0",
        "1: secure cookies, redirects to https, HSTS. `manage.py check --deploy` then finds nothing",
        shown="0",
    )
    hsts_s: int = variable(
        365 * 24 * 3600, "seconds", "with `OPATLAS_HTTPS`: how long browsers keep to https", least=0
    )
    static: str = variable(
        "",
        "word",
        "`collected`: serve hashed and compressed files, cached for ever. Run `collectstatic` before",
        shown="served from the tree",
        read=_one_of("collected"),
    )
    log: str = variable("INFO", "level", "the least level that is logged", read=_level)
    log_format: str = variable(
        "",
        "word",
        "`json`: one JSON object a line, requests among them",
        shown="lines for people",
        read=_one_of("json"),
    )
    server_timing: bool = variable(
        False,
        "1 or 0",
        "1: add a `Server-Timing` header, for benches. It tells strangers what the database holds",
        shown="0",
    )
    metrics_token: str = variable(
        "", "text", "the Bearer token for `/metrics`", shown="only this machine may read metrics", secret=True
    )
    rate_lookup: Rate = variable(
        "60000/min", "rate", "limit of lookups and artifacts for one API key", read=parse_rate
    )
    rate_api: Rate = variable("6000/min", "rate", "limit of all other requests with one key", read=parse_rate)
    rate_address: Rate = variable(
        "120000/min", "rate", "limit of all requests from one address", read=parse_rate
    )
    rate_refused: Rate = variable(
        "600/min", "rate", "limit of requests without a valid key from one address", read=parse_rate
    )
    login_tries: int = variable(
        10,
        "failed logins",
        "failed logins allowed in 15 minutes to one account from one address. From one address to any "
        "account: six times as many. To one account from anywhere: twenty times",
        least=1,
    )
    trial_logs_days: int = variable(
        90, "days", "how long logs of trials are kept; the trials themselves stay", least=1
    )
    email_url: str = variable(
        "",
        "URL",
        "the mail server: `submission://user:password@host:587`",
        secret=True,
        shown="mails are kept below `OPATLAS_HOME`",
    )
    email_from: str = variable("Opatlas <opatlas@localhost>", "address", "the sender of mails")
    digest_hour: int = variable(7, "hour, UTC", "when the daily digest is sent", least=0, most=23)
    alerts_off: tuple[str, ...] = variable(
        "",
        "names",
        "alert rules to switch off, separated by commas: `silent`, `failing`, `disturbed`, `queue_old`, "
        "`hits_falling`, `regressed`, `new_failure`, `step_failing`, `spend`, `spend_sudden`",
        shown="every rule is on",
        read=_listed,
    )
    alert_queue_s: float = variable(
        1800.0, "seconds", "alert if a first result waits longer than this", least=1
    )
    alert_hits_drop: float = variable(
        0.2,
        "share",
        "alert if the hit rate falls by more than this",
        least=0.01,
        most=1,
    )
    alert_credit_days: float = variable(
        3.0, "days", "alert if credit lasts less than this at the current rate of spending", least=0.1
    )
    alert_spend_times: float = variable(
        3.0, "usual days", "alert if charges within 24 hours exceed so many usual days", least=1.1
    )
    alert_spend_least: float = variable(
        20.0,
        "units",
        "in the account's currency: smaller charges within 24 hours are no sudden rise. An account that "
        "was never charged before is judged by this alone",
        least=0,
    )
    vapid_key: str = variable(
        "",
        "base64url",
        "the key by which push services know this service; the same on all nodes",
        secret=True,
        shown="made, and kept below `OPATLAS_HOME`",
    )
    webhooks_allow: tuple[str, ...] = variable(
        "",
        "host:port",
        "receivers of webhooks inside the own network, separated by commas",
        shown="only public addresses",
        read=_listed,
    )
    currency: str = variable("EUR", "ISO 4217", "the currency of accounts made before their first price")
    pay_url: str = variable(
        "", "URL", "the page where people pay; the billing page links to it", shown="none"
    )
    payment_secrets: tuple[str, ...] = variable(
        "",
        "secrets",
        "who may report payments: `provider=whsec_…`, separated by commas. To rotate a secret, name its "
        "provider twice",
        shown="nobody",
        secret=True,
        read=_listed,
    )


def conf() -> DashboardConf:
    return process(DashboardConf)
