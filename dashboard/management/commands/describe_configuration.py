"""``manage.py describe_configuration > docs/configuration.md``: every variable, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any

from catalog.commands import QuickCommand
from opatlas.conf import name_of

PACKAGES = {
    "dashboard": "The web service",
    "catalog": "State and limits of every node",
    "tuning": "Workers and explorations",
    "opatlas": "Jobs and workers",
    "bench": "Benches",
}


class Command(QuickCommand):
    help = "Write what can be set in the environment as Markdown."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(described(), ending="")


def described() -> str:
    """All variables as Markdown."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield (
        "# What can I configure?\n\n"
        "Every setting is an environment variable, read once when a process starts. An empty variable counts "
        "as not set. A value that cannot be read is refused with one sentence that says why. On one "
        "machine nothing has to be set. `manage.py describe_configuration > docs/configuration.md` writes "
        "this page from the packages' `conf.py`.\n"
    )
    for package, title in PACKAGES.items():
        yield f"\n## {title}\n`{package}/conf.py`\n\n| variable | default | unit | meaning |\n"
        yield "| --- | --- | --- | --- |\n"
        for one in fields(getattr(import_module(f"{package}.conf"), f"{package.title()}Conf")):
            about = one.metadata
            default = about["shown"] or (f"`{about['default']}`" if about["default"] != "" else "none")
            yield f"| `{name_of(one)}` | {default} | {about['unit']} | {about['says']} |\n"
