"""How groups of tests go to processes, one that dies included: a plug-in of pytest, in place of xdist's own.

xdist's ``loadgroup`` gives what a dead process had to the others: the test that killed it, which kills them
too, and groups of which nothing is left, for which it then waits for ever.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class GroupScheduling(LoadGroupScheduling):
    """As ``loadgroup``; a test that kills its process has failed, and what else it had runs elsewhere."""

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        test, units = self.registered_collections[node][item_index], self.assigned_work[node]
        unit = units[name := self._split_scope(test)]
        unit[test] = True
        if all(unit.values()):
            del units[name]  # what is left to do is counted after each test, over all that is kept here
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that ran as the process died; None where it had none left."""
        had = self.assigned_work.pop(node)
        left = [(unit, test) for unit in had.values() for test, is_done in unit.items() if not is_done]
        if not left:
            return None
        unit, killer = left[0]
        unit[killer] = True
        self.workqueue.update((name, unit) for name, unit in had.items() if not all(unit.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return killer

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # in a dead one's place: it reads the tests first
            return
        super()._reschedule(node)
        if self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)  # a process runs a test once it knows the next, or that there is none


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
