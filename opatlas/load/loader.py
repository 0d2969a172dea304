"""Manifest and files → kernel: every check first, then the kind's own loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from opatlas.errors import LoadError
from opatlas.load.files import read_verified
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import Manifest
from opatlas.load.needs import check_features, check_versions


def load(manifest: Manifest, folder: Path) -> LoadedKernel:
    """Load an artifact whose files lie side by side in ``folder``; a recipe needs none.

    Raises :class:`LoadError` with one sentence: an unknown kind, a file that is not what the manifest says, a
    CPU feature or an exact version that is not there, a recipe that is not on the allow-list. Signatures are
    the caller's to check (:mod:`opatlas.load.signing`): who may publish is a matter of where it came from.
    """
    loader = _LOADERS.get(manifest.kind)
    if loader is None:
        raise LoadError(
            f"artifact kind {str(manifest.kind)!r} is unknown; one of {', '.join(_LOADERS)} can be loaded"
        )
    alignment = manifest.alignment
    if alignment < 1 or alignment & (alignment - 1) or alignment > 4096:
        raise LoadError(f"alignment {alignment} is not a power of two up to 4096")
    files = read_verified(folder, manifest.files)
    check_features(manifest.features)
    check_versions(manifest.needs)
    return loader(manifest, files)


def _load_c(manifest: Manifest, files: Mapping[str, bytes]) -> LoadedKernel:
    from opatlas.load.c_abi import CKernel

    return CKernel(manifest, files)


def _load_recipe(manifest: Manifest, files: Mapping[str, bytes]) -> LoadedKernel:
    from opatlas.load.recipe import load_recipe

    if files:
        raise LoadError("a recipe has no files")
    return load_recipe(manifest)


def _load_package(manifest: Manifest, files: Mapping[str, bytes]) -> LoadedKernel:
    from opatlas.load.package import load_package

    return load_package(manifest, files)


_LOADERS: dict[str, Callable[[Manifest, Mapping[str, bytes]], LoadedKernel]] = {
    "c-abi": _load_c,
    "recipe": _load_recipe,
    "package": _load_package,
}
