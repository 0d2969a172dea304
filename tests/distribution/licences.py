"""What the installed distributions say of their own licences, by importlib.metadata alone."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.databases import ROOT

FAMILIES = {
    "ISC": r"\bISC\b|use, copy, modify, and distribute this software for any purpose with or without fee",
    "Apache": r"apache",
    "BSD": r"\b0?bsd\b|redistributions in binary form",
    "BSL": r"\bbsl-|boost software",
    "CC": r"\bcc0|\bcc-by",
    "GPL": r"\bgpl|general public license",
    "LGPL": r"lgpl|lesser general public",
    "MIT": r"\bmit\b|permission is hereby granted, free of charge",
    "MPL": r"\bmpl\b|mozilla public",
    "NVIDIA": r"licenseref-nvidia",
    "OFL": r"\bofl\b|open font licen[sc]e",
    "PSF": r"\bpsf|python software foundation",
    "Public domain": r"public.domain",
    "Zlib": r"\bzlib\b|must not claim that you wrote|must not be misrepresented",
}
"""A family of licences, and what a statement of one of them is known by."""


REQUIREMENTS = sorted(ROOT.glob("requirements*.txt"))


def families(statement: str) -> set[str]:
    """``"New BSD"`` → ``{"BSD"}``."""
    text = " ".join(statement.split())
    return {name for name, sign in FAMILIES.items() if re.search(sign, text, re.IGNORECASE)}


def wanted(files: list[Path]) -> dict[str, metadata.Distribution]:
    """Every installed distribution that requirements files ask for, directly or for one another."""
    found: dict[str, metadata.Distribution] = {}
    seen = set()
    waiting = [(Requirement(line), "") for path in files for line in _lines(path)]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a GPU worker's, for one
        for wish in {"", *requirement.extras} - {wish for known, wish in seen if known == name}:
            seen.add((name, wish))
            waiting += [(Requirement(text), wish) for text in found[name].requires or []]
    return found


def stated(distribution: metadata.Distribution) -> tuple[str, bool]:
    """What it says of its licence, and whether that is an SPDX expression.

    From its metadata, or from its licence file where that says nothing.
    """
    fields = distribution.metadata
    if expression := fields.get("License-Expression"):
        return expression, True
    classifiers = [line for line in fields.get_all("Classifier") or [] if line.startswith("License ::")]
    statement = " ".join([(fields.get("License") or "")[:1000], *classifiers])
    if families(statement):
        return statement, False
    texts = [file for file in distribution.files or [] if re.search("licen[sc]e|copying", file.name, re.I)]
    return " ".join(str(file.read_text())[:3000] for file in texts), False


def _lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]
