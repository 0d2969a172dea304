"""A command begun and killed, again and again: ``python -m tests.hostile.killing COMMAND …``.

Each is a fork of a process that has Django set up, with a failpoint armed: after its first write, then after
its second, fourth and so on, until one comes to its end; and once right after its first commit. So the places
are the same every time, and none is before or after the work. Ends with code 1 where nothing was killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from catalog import failpoints

WRITES = ("INSERT", "UPDATE", "DELETE")


def main(name: str, *options: str) -> int:
    import django
    from django.core.management import call_command, get_commands, load_command_class

    django.setup()
    command = load_command_class(get_commands()[name], name)

    def killed(faults: str) -> bool:
        return os.WIFSIGNALED(forked(lambda: call_command(command, *options), faults))

    writes = 1
    while killed(after_writes(writes)):
        writes *= 2
    return 0 if writes > 1 and killed(AFTER_COMMIT) else 1


AFTER_COMMIT = "database-committed=kill@1"


def after_writes(number: int) -> str:
    """Killed when that many statements have written."""
    return f"database-written=kill@{number}"


def forked(work: Callable[[], Any], faults: str = "") -> int:
    """Work in a fork in which failpoints are armed, those of the database too; gives how it ended."""
    child = os.fork()
    if child == 0:
        try:
            _watch_the_database()
            failpoints.arm(faults)
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def _watch_the_database() -> None:
    """Statements that write, and commits, pass a failpoint each: Django has no hook for the latter."""
    from django.db import connection

    commit = connection._commit

    def executed(execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql.lstrip().upper().startswith(WRITES):
            failpoints.at("database-written")
        return result

    def committed() -> None:
        commit()
        failpoints.at("database-committed")

    connection.execute_wrappers.append(executed)
    connection._commit = committed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
