"""``python -m tuning.bare bench|prebuild|bundle``: what ``make`` and the errand's script call."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from opatlas.identity.place.cuda import NoDevice
from tuning.bare.clock import SliceClock
from tuning.conf import conf

if TYPE_CHECKING:
    from tuning.bare.measuring import ProblemTools
    from tuning.bare.prebuilt import Prebuilt
    from tuning.bare.problems import Problem

STATE = Path("var/gpu/state")


class NothingToMeasure(Exception):
    """One sentence."""


def main() -> int:
    said = _parser().parse_args()
    if said.what == "bundle":
        return _bundle(said)
    if said.what == "prebuild":
        return _prebuild(said)
    return _bench(said)


def _bundle(said: argparse.Namespace) -> int:
    from tuning.bare.bundle import BundleTooLarge, make_bundle

    try:
        made = make_bundle(said.out, home=said.home)
    except BundleTooLarge as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{said.out}: {made.nbytes / 2**20:.1f} MiB, {made.wheels} packages, {made.builds} builds")
    for reason in made.missing:
        print(f"not in it: {reason}")
    return 0


def _prebuild(said: argparse.Namespace) -> int:
    from tuning.bare import prebuilding, slices
    from tuning.bare.problems import problems
    from tuning.measure.laboratory import Laboratory
    from tuning.routes import registry

    target = prebuilding.NAMED[said.arch]
    routes = slices.with_shipped(registry.routes_for(target.kind))
    wanted = problems(said.workloads)[: said.most]
    with TemporaryDirectory(prefix="opatlas-bare-") as home, Laboratory(Path(home), target) as laboratory:
        done = prebuilding.prebuild(laboratory, routes, wanted, said.prebuilt)
    print(json.dumps(asdict(done)))
    return 0 if done.built or done.known else 1


def _bench(said: argparse.Namespace) -> int:
    from tuning.bare import slices
    from tuning.bare.measuring import PASSES
    from tuning.measure.timing.lock import DeviceTaken

    taken_s = time.time() - said.since if said.since else 0.0
    clock = SliceClock.of((slices.SLICE_S if said.seconds is None else said.seconds) - taken_s)
    passes = [
        replace(one, problem_s=said.each or one.problem_s)
        for name, one in PASSES.items()
        if said.passing in ("", name)
    ]
    stand_in = importlib.import_module(said.rehearsed).tools if said.rehearsed else _tools
    try:
        with stand_in(said) as (tools, wanted):
            if not wanted:
                raise NothingToMeasure("OPATLAS_WORKLOADS names no folder with the open lists.")
            found = slices.bench(tools, wanted, said.state, clock.left_s, passes=passes)
    except (NoDevice, DeviceTaken, NothingToMeasure) as error:
        print(f"Nothing was measured: {error}", file=sys.stderr)
        return os.EX_CONFIG
    print(json.dumps(found, indent=2))
    return 0


@contextmanager
def _tools(said: argparse.Namespace) -> Iterator[tuple[ProblemTools, list[Problem]]]:
    """Of a device of this machine. Raises NoDevice and DeviceTaken."""
    from opatlas.identity.place.cuda import detect_gpus
    from tuning.bare import slices
    from tuning.bare.ceilings import known_or_asked
    from tuning.bare.measuring import ProblemTools
    from tuning.bare.problems import problems
    from tuning.measure.device.gpus import gpu_named, see_only
    from tuning.measure.device.watch import watched
    from tuning.measure.laboratory import Laboratory
    from tuning.measure.timing.lock import take_device
    from tuning.routes import registry
    from tuning.routes.compiler.inductor.baseline import TorchCompile

    gpu = gpu_named(said.device)
    see_only(gpu)
    target = detect_gpus()[0]
    take_device(gpu.name, gpu.uuid or gpu.name)
    ceilings = known_or_asked(said.state / "ceilings.json")
    routes = slices.with_shipped(registry.routes_for(target.kind))
    with (
        TemporaryDirectory(prefix="opatlas-bare-") as home,
        Laboratory(Path(home), target, device=watched(gpu)) as laboratory,
    ):
        laboratory.warm(tuple(route for route in routes if route.available(target)))
        yield (
            ProblemTools(
                laboratory,
                routes,
                registry.default_candidate,
                baseline=TorchCompile(),
                prebuilt=said.prebuilt,
                ceilings=ceilings,
            ),
            problems(said.workloads)[: said.most],
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tuning.bare")
    parser.add_argument("what", choices=["bench", "prebuild", "bundle"])
    parser.add_argument("--seconds", type=float, help="of one slice, below 8 minutes if it is not said")
    parser.add_argument("--since", type=float, help="when it began, as a Unix time: now if it is not said")
    parser.add_argument("--state", type=Path, default=STATE, help="what slices leave to the next one")
    parser.add_argument("--device", default=conf().device or "cuda:0")
    parser.add_argument("--workloads", type=Path, help="the open lists' folder")
    parser.add_argument("--most", type=int, help="so many problems, the first of each list and type first")
    parser.add_argument("--pass", dest="passing", default="", choices=["", "quick", "thorough"])
    parser.add_argument("--each", type=float, help="seconds that one problem may take at most")
    parser.add_argument("--prebuilt", type=_prebuilt, default="prebuilt", help="what was built at home")
    parser.add_argument("--arch", default="sm_90", help="what is built for where no device is")
    parser.add_argument("--rehearsed", help="a module whose tools stand in for a device's")
    parser.add_argument("--home", type=Path, help="the environment that make gpu-home makes")
    parser.add_argument("--out", type=Path, default=Path("var/gpu/opatlas-gpu.tar.gz"))
    return parser


def _prebuilt(folder: str) -> Prebuilt:
    from tuning.bare.prebuilt import Prebuilt

    return Prebuilt(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
