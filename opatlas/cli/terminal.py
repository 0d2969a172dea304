"""What all parts of the command ``opatlas`` share: its client, how it reads words, how it shows answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from opatlas.errors import CallerError

if TYPE_CHECKING:
    from opatlas.client import Client


def client(offline: bool = False, **options: Any) -> Client:
    from opatlas.client import Client

    return Client(offline=offline, strict=not offline, timeout_s=30.0, **options)


def attribute(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CallerError(f"An attribute looks like transB=1, not {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def table(*columns: str) -> Table:
    table = Table(show_header=any(columns), box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False)


def tell(as_json: bool, told: Mapping[str, Any], sentence: str) -> None:
    """What was done: for scripts, or for people."""
    print_json(told) if as_json else print(sentence)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False))
