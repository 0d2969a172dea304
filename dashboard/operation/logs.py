"""Log lines: for people by default, JSON with ``OPATLAS_LOG_FORMAT=json``. Settings import this early."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from catalog.context import log_fields
from catalog.people.secret_links import without_secret_links


class AddContext(logging.Filter):
    """Puts what :func:`catalog.context.added_log_fields` holds on every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in log_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


class PlainLines(logging.Formatter):
    """For people. Of whatever logger: Django's own names the path of each refused request too."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return without_secret_links(super().format(record))


class JsonLines(JsonFormatter):
    """One JSON object a line: time (UTC), level, logger, message, and whatever the record carries."""

    def __init__(self) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s %(process)d",
            rename_fields={"levelname": "level", "name": "logger", "exc_info": "traceback"},
            reserved_attrs=[*_RESERVED, "request", "server_time"],
        )

    def format(self, record: logging.LogRecord) -> str:
        return without_secret_links(super().format(record))

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in super().process_log_record(log_data).items() if value != ""}

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        moment = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        super().add_fields(log_data, record, message_dict)


_RESERVED = [*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"]


def logging_settings(form: str, level: str) -> dict[str, Any]:
    """Django's LOGGING; ``form`` is ``json`` or anything else for plain lines."""
    structured = form == "json"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"context": {"()": "dashboard.operation.logs.AddContext"}},
        "formatters": {
            "line": {"()": "dashboard.operation.logs.PlainLines"},
            "json": {"()": "dashboard.operation.logs.JsonLines"},
        },
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "formatter": "json" if structured else "line",
                "filters": ["context"],
            }
        },
        "root": {"handlers": ["console"], "level": level},
        # A line for every request is for machines to read; people who start the service want to see its news.
        "loggers": {"opatlas.access": {"level": "INFO" if structured else "WARNING"}},
    }
