"""The command ``opatlas``: what a job's client knows and does, for people and scripts."""

from opatlas.cli.commands import app, main

__all__ = ["app", "main"]
