"""Kind ``package``: a compiled file that only its exact framework can load. The suffix says which."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from opatlas.errors import LoadError
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import Manifest

_LOADERS = {
    ".pt2": ("torch", "opatlas.load.torch.package"),  # torch._inductor.aoti_compile_and_package
    ".stablehlo": ("jax", "opatlas.load.package_stablehlo"),  # jax.export.Exported.serialize
}
"""Suffix → (distribution that the manifest must need, module with ``open_kernel(manifest, files)``).

Nothing here is a pickle: a package must never choose what Python runs."""

BUILT_FOR = "device.json"
"""A file beside a package for a device, saying which (:mod:`opatlas.load.torch.device_package`). A package
without it is for the CPU."""


def load_package(manifest: Manifest, files: Mapping[str, bytes]) -> LoadedKernel:
    """The kernel in the package; :class:`LoadError` if no installed framework can load it."""
    suffixes = [suffix for name in files for suffix in _LOADERS if name.endswith(suffix)]
    if len(suffixes) != 1:
        raise LoadError(f"a package has one file that ends in {' or '.join(_LOADERS)}, not {len(suffixes)}")
    framework, module = _LOADERS[suffixes[0]]
    if framework not in manifest.needs:
        raise LoadError(
            f"a {suffixes[0]} package states the exact {framework} that it needs; this one does not"
        )
    try:
        loader = importlib.import_module(module)
    except ImportError as error:
        raise LoadError(f"needs {framework}, which cannot be imported: {error}") from error
    kernel: LoadedKernel = loader.open_kernel(manifest, files)
    return kernel
