"""``python -m tuning.bare.ceilings``: what this device does at most, measured on it: the roofline.

The largest product by type, the largest copy, one launch. A process of its own: who has initialised CUDA
cannot fork children that use it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, describe

PRODUCT, COPY_BYTES, TIMES = 8192, 1 << 30, 5
ASKING_S = 60.0
TYPES = ("float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True)
class Ceilings:
    """``flops_per_s`` by the type of a product's operands (``tf32``: of float32 where the setting allows it);
    ``bytes_per_s`` read and written by a copy; ``launch_us`` of one call that does next to nothing, in a row
    of them, by the host's clock."""

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    launch_us: float

    def of(self, operator: Operator, setting: Setting) -> dict[str, Any]:
        """The least that an operator can take by them, in microseconds, and by which; a type that was not
        measured is bounded by what it moves. What keeps its operands in the caches, and convolutions that
        save products, may take less."""
        described = describe(operator)
        narrow = next((one.dtype for one in operator.inputs if one.data is None), "float32")
        peak = self.flops_per_s.get("tf32" if narrow == "float32" and setting.tf32 else narrow)
        bounds = {
            "flops": 1e6 * described.flops / peak if peak else 0.0,
            "bytes": 1e6 * described.bytes_moved / self.bytes_per_s,
            "launch": self.launch_us,
        }
        by = max(bounds, key=lambda name: bounds[name])
        return {"us": round(bounds[by], 3), "by": by}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Ceilings:
        flops = {str(name): float(value) for name, value in said["flops_per_s"].items()}
        return cls(str(said["device"]), flops, float(said["bytes_per_s"]), float(said["launch_us"]))


def asked(device: str = "cuda") -> Ceilings | str:
    """Measured in a process of its own, on what that sees; why not."""
    command = [sys.executable, "-m", __name__, "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKING_S, check=False)
        return Ceilings.from_json(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return f"the ceilings took longer than {ASKING_S:.0f} s"
    except (ValueError, LookupError, TypeError):
        return (done.stderr.strip().splitlines() or ["the ceilings have no result"])[-1][:300]


def known_or_asked(path: Path, device: str = "cuda") -> Ceilings | None:
    """What an earlier slice measured, else measured now and kept; None where that fails, which is said."""
    if path.exists():
        return Ceilings.from_json(json.loads(path.read_text()))
    found = asked(device)
    if isinstance(found, str):
        print(f"no ceilings: {found}", file=sys.stderr, flush=True)
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.half")
    half.write_text(json.dumps(asdict(found)) + "\n")
    half.replace(path)
    return found


def measured(device: str, size: int = PRODUCT, nbytes: int = COPY_BYTES) -> Ceilings:
    """With PyTorch, the best of a few each. On ``cpu`` as well, for the tests."""
    import torch

    on_device = device == "cuda"
    wait: Callable[[], Any] = torch.cuda.synchronize if on_device else lambda: None

    def seconds(call: Callable[[], Any], calls: int = 1) -> float:
        best = float("inf")
        for _ in range(TIMES):
            wait()
            began = time.perf_counter()
            for _ in range(calls):
                call()
            wait()
            best = min(best, (time.perf_counter() - began) / calls)
        return best

    flops: dict[str, float] = {}
    for name in TYPES if on_device else ("float32",):
        dtype = torch.float32 if name == "tf32" else getattr(torch, name)
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        made = torch.empty_like(a)
        flops[name] = 2 * size**3 / seconds(partial(torch.matmul, a, b, out=made))
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = 2 * nbytes / seconds(lambda: target.copy_(source))
    one = torch.zeros(1, device=device)
    launch_us = 1e6 * seconds(lambda: one.add_(1), 1000)
    name = torch.cuda.get_device_name() if on_device else "the processor"
    return Ceilings(name, flops, copied, launch_us)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    said = parser.parse_args()
    sizes = () if said.device == "cuda" else (256, 1 << 24)
    print(json.dumps(asdict(measured(said.device, *sizes))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
