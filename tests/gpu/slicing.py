"""A plug-in of the process in which a slice runs a module (``tuning.bare.slices``): it writes down how each
test ended, passes over those that have, and leaves to the next slice what might not end within this one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tuning.measure.laboratory import BUILDS_ON_DEVICE, DEVICE_BUILD_S

BUILDING_S = DEVICE_BUILD_S + 60
"""What a test may take that times something on a device while it builds, or is marked slow itself (not its
module alone);"""
DEVICE_S = 90.0
"""one that builds what it runs there; any other takes at most ``QUICK_S``."""
QUICK_S = 30.0


def longest_s(item: pytest.Item) -> float:
    slow = any(mark.name == "slow" for mark in item.own_markers)
    on_device = "device_laboratory" in getattr(item, "fixturenames", ())
    if slow or (on_device and any(name in item.name for name in BUILDS_ON_DEVICE)):
        return BUILDING_S
    return DEVICE_S if on_device else QUICK_S


class SliceOfTests:
    def __init__(self, ended: Path, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        self.ended = ended
        self.known = {json.loads(line)["test"] for line in ended.read_text().splitlines()}

    def tell(self, test: str, how: str, why: str = "") -> None:
        with self.ended.open("a") as file:
            file.write(json.dumps({"test": test, "how": how, "why": why[:300]}) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True: it is done with."""
        if time.monotonic() + longest_s(item) <= self.ends:
            return None
        self.tell(item.nodeid, "left")
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.tell(report.nodeid, "skipped", why_skipped(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.tell(report.nodeid, "failed", crash.message if crash else report.longreprtext)
        elif report.skipped:
            self.tell(report.nodeid, "skipped", why_skipped(report))
        elif report.when == "call":
            self.tell(report.nodeid, "passed")


def why_skipped(report: pytest.CollectReport | pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return said.removeprefix("Skipped: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ended", type=Path, help="a file of how tests have ended, read and added to")
    parser.addoption("--seconds", type=float, help="what is left of the slice")


def pytest_configure(config: pytest.Config) -> None:
    if ended := config.getoption("ended", None):
        config.pluginmanager.register(SliceOfTests(ended, config.getoption("seconds")))
