"""The warm processes of a laboratory, by name: what each has imported, and what of it runs in which."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from opatlas.errors import LoadError
from opatlas.load import Manifest
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.sandbox.tiers import SandboxTier
from tuning.measure.sandbox.zygote import Zygote
from tuning.routes.base import Route
from tuning.routes.manual.submitted import KINDS

log = logging.getLogger(__name__)

_MEASURING = ("opatlas.load", "opatlas.load.pool:pool_library", "tuning.measure.bound_kernel")
SUBMITTED = tuple(KINDS)
"""Routes whose code somebody else wrote: its children never share a zygote with ours."""

PRELOAD: Mapping[str, tuple[str, ...]] = {
    "native": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
    "manual": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
    "cpp": ("numpy",),
    "cuda": ("numpy", "opatlas.load", "tuning.measure.bound_kernel", "opatlas.load.cuda.module"),
    "xla": ("numpy", "jax", *_MEASURING),
    "library": (
        *("numpy", "onnx", "torch", "onnxruntime"),
        *(*_MEASURING, "opatlas.load.torch.recipe", "opatlas.load.onnxruntime_recipe"),
        *("opatlas.load.numpy_recipe", "opatlas.load.numpy_arrays", "opatlas.load.torch.variants"),
        *("tuning.routes.registry", "tuning.measure.judging.reference"),
    ),
}
"""What a zygote imports beside its routes' ``preload``. ``native`` runs compiled candidates: it shares
neither processes nor memory with the default, which lives in ``library``. ``manual`` is like it, for what
somebody submitted, which ``cpp`` compiles: where it runs there is no compiler. ``cuda`` runs device code,
and initialises CUDA in its children only. ``xla`` loads what needs JAX."""

READS_CODE = "cpp"
"""The zygote whose children disassemble: it has the tools, imports next to nothing, and takes it that what
lies there is hostile."""

ON_DEVICE = ("cuda", "library", "inductor")
"""Zygotes whose children reach the laboratory's device, where it has one."""


def zygote_of(manifest: Manifest) -> str:
    """Which zygote's children load an artifact."""
    if manifest.kind == "c-abi":
        return "manual" if manifest.route in SUBMITTED else "native"
    if manifest.kind == "cuda-module":
        return "cuda"
    return "xla" if "jax" in manifest.needs else "library"


class Zygotes:
    """Each is made when it is first asked for, and started by who needs it: ``zygotes["native"]``.

    Their folders lie in ``home``; ``readable`` are further ones that children may read.
    """

    def __init__(
        self, home: Path, tier: SandboxTier, readable: Sequence[Path], device: DeviceWatch | None
    ) -> None:
        self._home, self._tier, self._readable, self._device = home, tier, tuple(readable), device
        self._made: dict[str, Zygote] = {}
        self._preload: dict[str, tuple[str, ...]] = dict(PRELOAD)

    def __getitem__(self, name: str) -> Zygote:
        if name not in self._made:
            preload = self._preload.get(name, PRELOAD["native"])
            device = self._device if name in ON_DEVICE else None
            self._made[name] = Zygote(
                name, preload, self._tier.name, self._home / name, self._pool_folder, self._readable, device
            )
        return self._made[name]

    def warm(self, routes: tuple[Route, ...]) -> None:
        """Start those that these routes need (seconds), so that the first candidate does not wait."""
        for route in routes:
            known = self._preload.get(route.zygote, PRELOAD["native"][:1])
            self._preload[route.zygote] = tuple(dict.fromkeys((*known, *route.preload)))
        names = {"library", "native", *(route.zygote for route in routes)}
        started = [zygote for name in sorted(names) if not (zygote := self[name]).alive]
        for zygote in started:
            zygote.start()
        for zygote in started:
            try:
                zygote.wait_ready()
            except ChildFailed as failed:
                log.error("zygote %s does not start: %s", zygote.name, failed.detail)
                continue
            for module, reason in zygote.ready.get("failed", {}).items():
                log.warning("zygote %s cannot import %s: %s", zygote.name, module, reason)

    def close(self) -> None:
        """End all of them."""
        for zygote in self._made.values():
            zygote.close()
        self._made.clear()

    @cached_property
    def _pool_folder(self) -> Path | None:
        """Where the loader's thread pool lies compiled, so that no child needs a compiler for it: a folder
        with nothing else in it, since children of other users are shown it."""
        from opatlas.load.pool import ensure_built
        from opatlas.own_folder import read_own

        folder = self._home / "pool"
        try:
            built = ensure_built()
            folder.mkdir(parents=True, exist_ok=True)
            (folder / built.name).write_bytes(read_own(built))
            (folder / built.name).chmod(0o644)
            folder.chmod(0o755)
            return folder
        except (LoadError, OSError) as error:
            log.warning("the loader's thread pool cannot be built: %s", error)
            return None
