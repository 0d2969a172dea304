"""``python -m tuning.bare test|bench|bundle``: what ``make`` calls where there is a GPU and no service."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tuning.conf import conf

STATE = Path("var/gpu/state")


def main() -> int:
    said = _parser().parse_args()
    if said.what == "bundle":
        return _bundle(said)
    from tuning.bare import slices

    since = said.since or time.time()
    said.seconds = (said.seconds or slices.SLICE_S) - (time.time() - since)
    if said.what == "test":
        found = slices.test(said.state, said.seconds)
        print(json.dumps(found, indent=2))
        return 1 if found["failed"] else 0
    return _bench(said)


def _bundle(said: argparse.Namespace) -> int:
    from tuning.bare.bundle import BundleTooLarge, make_bundle

    try:
        made = make_bundle(said.out)
    except BundleTooLarge as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{said.out}: {made.nbytes / 2**20:.1f} MiB, {made.wheels} packages")
    for reason in made.missing:
        print(f"not in it: {reason}")
    return 0


def _bench(said: argparse.Namespace) -> int:
    from opatlas.identity.place.cuda import NoDevice, detect_gpus
    from tuning.bare import slices
    from tuning.bare.problems import problems
    from tuning.measure.device.gpus import gpu_named, see_only
    from tuning.measure.device.watch import watched
    from tuning.measure.laboratory import Laboratory
    from tuning.measure.timing.lock import DeviceTaken, take_device
    from tuning.routes import registry
    from tuning.routes.compiler.inductor.baseline import TorchCompile

    try:
        gpu = gpu_named(said.device)
        see_only(gpu)
        target = detect_gpus()[0]
        take_device(gpu.name, gpu.uuid or gpu.name)
    except (NoDevice, DeviceTaken) as error:
        print(f"Nothing was measured: {error}", file=sys.stderr)
        return os.EX_CONFIG
    wanted = problems(said.workloads)
    if not wanted:
        print("Nothing was measured: OPATLAS_WORKLOADS names no folder with the open lists.", file=sys.stderr)
        return os.EX_CONFIG
    routes = slices.with_shipped(registry.routes_for(target.kind))
    with (
        TemporaryDirectory(prefix="opatlas-bare-") as home,
        Laboratory(Path(home), target, device=watched(gpu)) as laboratory,
    ):
        laboratory.warm(tuple(route for route in routes if route.available(target)))
        state, seconds = said.state, said.seconds
        found = slices.bench(
            laboratory, routes, registry.default_candidate, wanted, state, seconds, baseline=TorchCompile()
        )
    print(json.dumps(found, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tuning.bare")
    parser.add_argument("what", choices=["test", "bench", "bundle"])
    parser.add_argument("--seconds", type=float, help="of one slice, below 8 minutes if it is not said")
    parser.add_argument("--since", type=float, help="when it began, as a Unix time: now if it is not said")
    parser.add_argument("--state", type=Path, default=STATE, help="what slices leave to the next one")
    parser.add_argument("--device", default=conf().device or "cuda:0")
    parser.add_argument("--workloads", type=Path, help="the open lists' folder")
    parser.add_argument("--out", type=Path, default=Path("var/gpu/opatlas-gpu.tar.gz"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
