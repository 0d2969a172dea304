"""From manifest and files to a kernel: all checks first, then the kind's own loader."""

from __future__ import annotations

import importlib
from pathlib import Path

from opatlas.errors import LoadError
from opatlas.load.files import read_verified
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import BUILT_FOR_THREADS, Manifest
from opatlas.load.needs import check_features, check_versions


def load(manifest: Manifest, folder: Path, threads: int | None = None) -> LoadedKernel:
    """Load an artifact whose files are in ``folder``; a recipe needs none.

    ``threads``: run on so many instead of the setting's. A library's call then uses so many (or keeps its
    number, if it was found best with fewer than its setting has). Compiled code keeps the number that it was
    built for, and gets at most these threads; a package that was built for more is refused.

    Raises :class:`LoadError` with one sentence: an unknown kind, a file that differs from the manifest, a
    missing CPU feature or exact version, a recipe that is not on the allow-list. The caller checks signatures
    (:mod:`opatlas.load.signing`): who may publish depends on where the artifact came from.
    """
    if manifest.kind not in _LOADERS:
        raise LoadError(
            f"artifact kind {str(manifest.kind)!r} is unknown; one of {', '.join(_LOADERS)} can be loaded"
        )
    alignment = manifest.alignment
    if alignment < 1 or alignment & (alignment - 1) or alignment > 4096:
        raise LoadError(f"alignment {alignment} is not a power of two up to 4096")
    if threads is not None and manifest.kind == BUILT_FOR_THREADS and manifest.setting["threads"] > threads:
        raise LoadError(f"it was built for {manifest.setting['threads']} threads, and here are {threads}")
    files = read_verified(folder, manifest.files)
    check_features(manifest.features)
    check_versions(manifest.needs)
    module, name = _LOADERS[manifest.kind]
    told = {"threads": threads} if threads is not None and manifest.kind in _TAKE_THREADS else {}
    kernel: LoadedKernel = getattr(importlib.import_module(module), name)(manifest, files, **told)
    return kernel


_LOADERS = {
    "c-abi": ("opatlas.load.c_abi", "CKernel"),
    "cuda-module": ("opatlas.load.cuda.module", "CudaKernel"),
    "recipe": ("opatlas.load.recipe", "load_recipe"),
    "package": ("opatlas.load.package", "load_package"),
}
"""Kind → the module, and its function that makes a kernel of (manifest, files)."""

_TAKE_THREADS = ("c-abi", "recipe")
