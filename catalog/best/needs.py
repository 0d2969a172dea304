"""What an artifact needs, as one short text that a lookup compares without parsing JSON."""

from __future__ import annotations

from collections.abc import Mapping


def needs_text(needs: Mapping[str, str]) -> str:
    """``{"torch": "2.13.0", "numpy": "2.4.6"}`` → ``"numpy==2.4.6,torch==2.13.0"``."""
    return ",".join(f"{name}=={version}" for name, version in sorted(needs.items()))


def are_met(text: str, versions: Mapping[str, str]) -> bool:
    """Whether a caller with these exact versions can load what ``text`` (of :func:`needs_text`) asks for.

    Needs name public versions; a caller's may have a local label (``2.13.0+cpu``).
    """
    if not text:
        return True
    wanted = (item.partition("==") for item in text.split(","))
    return all(versions.get(name, "").partition("+")[0] == version for name, _, version in wanted)
