"""Route × tier: each route builds one tiny operator, loads it and computes it in every tier that a worker may
report, as the worker would come to that tier: without bubblewrap (T1), and without ``unshare`` too (T0).
By day each in the tight one, and two in each of the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opatlas.identity import detect_target
from tests import by_day
from tests.configuring import configured
from tests.tuning.measure.conftest import TESTS
from tests.tuning.routes.broken import NoFolder, Wrong
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.measure.proving import SETTING, operator_of, own_kernel, prove, tiny
from tuning.measure.sandbox import programs
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.sandbox.layout import fixed_addresses
from tuning.routes.base import BuiltArtifact, Candidate, Route
from tuning.routes.compiler.inductor import InductorRoute
from tuning.routes.manual.cpp import CppRoute
from tuning.routes.registry import default_candidate, routes_for

ROUTES = routes_for("cpu")

pytestmark = [pytest.mark.slow, pytest.mark.group("route-by-tier")]

MISSING = {"T2": (), "T1": ("bwrap",), "T0": ("bwrap", "unshare")}


@contextmanager
def machine_without(absent: tuple[str, ...], folder: Path) -> Iterator[None]:
    """A machine where these programs are not installed."""
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            (folder / program.name).unlink(missing_ok=True)
            if program.name not in absent:
                (folder / program.name).symlink_to(program)
    remembered = (sandbox.best_tier, programs.program, fixed_addresses)
    with pytest.MonkeyPatch.context() as patch:
        if absent:
            patch.setenv("PATH", str(folder))
        for function in remembered:
            function.cache_clear()
        yield
    for function in remembered:
        function.cache_clear()


@pytest.fixture(scope="module", params=list(MISSING))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A worker's laboratory in the tier that it comes to by itself."""
    tier, home = request.param, tmp_path_factory.mktemp(request.param)
    if reason := sandbox.why_not(tier):
        pytest.skip(f"tier {tier}: {reason}")
    (home / "programs").mkdir()
    with (
        machine_without(MISSING[tier], home / "programs"),
        configured(lock=home / "lock"),
        Laboratory(home, detect_target(), readable=[TESTS]) as laboratory,
    ):
        assert laboratory.tier.name == tier
        yield laboratory


def must_work(lab: Laboratory, route: Route) -> None:
    if route.name == "cpp" and lab.tier.name == "T0":
        failure = prove(lab, route)
        assert "submitted code runs in a sandbox of tier T2 only (T2: bwrap is not installed" in failure
        assert "apt-get install bubblewrap" in failure
    else:
        assert prove(lab, route) == ""


QUICK = [one for one in ROUTES if one.name in ("eager", "cpp")]
OTHERS = [one for one in ROUTES if one not in QUICK and one.name != "inductor"]


# A tier's laboratory is shared where the routes are parameters apart from it.
@pytest.mark.parametrize("route", QUICK, ids=lambda one: one.name)
def test_two_routes_build_load_and_compute(lab: Laboratory, route: Route) -> None:
    must_work(lab, route)


@pytest.mark.parametrize("lab", by_day.only(["T2"], MISSING), indirect=True)
@pytest.mark.parametrize("route", OTHERS, ids=lambda one: one.name)
def test_so_does_every_other(lab: Laboratory, route: Route) -> None:
    must_work(lab, route)


def test_somebodys_source_is_built_in_the_tight_tier_only(lab: Laboratory, tmp_path: Path) -> None:
    own = own_kernel()
    source = f"{own.parameters['source']}\n/* somebody's */\n"
    theirs = Candidate("cpp", {**own.parameters, "source": source}, "somebody's")
    built = lab.build(CppRoute(), operator_of("Relu", [8, 16]), SETTING, theirs, tmp_path)
    if lab.tier.name == "T2":
        assert isinstance(built, BuiltArtifact), built
        assert lab.check(operator_of("Relu", [8, 16]), SETTING, built).ok
    else:
        assert isinstance(built, Outcome) and built.status is Status.UNSUPPORTED
        assert "bwrap is not installed (apt-get install bubblewrap)" in built.detail
        assert not list(tmp_path.iterdir()), "nothing was compiled"


def test_a_route_that_imports_well_and_fails_to_build_is_found_out(lab: Laboratory) -> None:
    assert NoFolder().available(lab.target)
    failure = prove(lab, NoFolder())
    assert failure.startswith("A tiny Add cannot be built in the sandbox: ")
    assert failure.endswith("Unable to create temp directory"), "the first line of what it said"


def test_a_route_that_builds_and_computes_wrong_is_found_out(lab: Laboratory) -> None:
    assert Wrong().available(lab.target)
    doing = "built" if lab.tier.name == "T0" else "run"
    assert prove(lab, Wrong()).startswith(f"A tiny Relu cannot be {doing} in the sandbox: ")


@pytest.mark.parametrize(
    "lab",
    [pytest.param(tier, marks=pytest.mark.nightly) for tier in MISSING],
    indirect=True,
)
def test_inductor_works_in_every_tier(lab: Laboratory) -> None:
    """Its first build takes 12 s in each laboratory: always in T1, where nothing else builds it."""
    must_work(lab, InductorRoute())


@pytest.mark.nightly
@pytest.mark.parametrize("route", ROUTES, ids=lambda one: one.name)
def test_every_route_is_checked_and_timed(lab: Laboratory, route: Route, tmp_path: Path) -> None:
    """The whole of it: a bench, with the default beside. What a busy host does to times is not its fault."""
    for operator, candidate in tiny(lab, route):
        built = lab.build(route, operator, SETTING, candidate, tmp_path / "built")
        if route.name == "cpp" and lab.tier.name == "T0":
            assert isinstance(built, Outcome) and built.status is Status.UNSUPPORTED
            return
        assert isinstance(built, BuiltArtifact), built
        given = default_candidate(operator, lab.target, SETTING)
        assert given is not None
        default = lab.build(given[0], operator, SETTING, given[1], tmp_path / "default")
        assert isinstance(default, BuiltArtifact)
        with lab.bench(operator, SETTING, default) as bench:
            outcome = bench.measure(built)
        assert outcome.status in (Status.OK, Status.NOISY, Status.SLOWER), outcome
        return
    raise AssertionError(f"{route.name} expresses none of the tiny operators")
