"""``make test-all``: every test, those marked ``nightly`` among them, in parts of at most 40 minutes.

Parts that were green at this state of the tree are not run again, so that it goes on where it was cut off;
``PART=name`` runs one. The last lines say what is left. What was green lies in var/nightly.json.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.__main__ import FORKED

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / "var" / "nightly.json"
MOST_S = 40 * 60
PARTS = {
    "opatlas": ("tests/opatlas/",),
    "graph": ("tests/tuning/graph/",),
    "measure": ("tests/tuning/measure/",),
    "compilers": ("tests/tuning/routes/compiler/",),
    "routes": ("tests/tuning/routes/",),
    "workers": ("tests/tuning/",),
    "cheats": ("tests/hostile/cheats/",),
    "hostile": ("tests/hostile/", "tests/chaos/", "tests/tenancy/"),
    "pages": ("tests/dashboard/pages/", "tests/dashboard/browser/", "tests/dashboard/web/"),
    "dashboard": ("tests/dashboard/",),
    "rest": ("tests/",),
}
"""A test's file belongs to the part with the longest beginning of its path."""


def files_of(part: str) -> list[str]:
    return [path for path in _files() if _part_of(path) == part]


def _files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def _part_of(path: str) -> str:
    beginnings = {begins: part for part, several in PARTS.items() for begins in several}
    return beginnings[max((begins for begins in beginnings if path.startswith(begins)), key=len)]


def state_of_tree(root: Path = ROOT) -> str:
    """The commit, and what of the tree is not committed."""

    def git(*command: str) -> bytes:
        return subprocess.run(["git", *command], cwd=root, capture_output=True, check=True).stdout

    others = git("ls-files", "--others", "--exclude-standard").split(b"\n")
    contents = [(root / name.decode()).read_bytes() for name in others if name]
    changed = b"\0".join([git("diff", "HEAD"), *others, *contents])
    return git("rev-parse", "HEAD").decode().strip() + f" {hashlib.sha256(changed).hexdigest()[:12]}"


def green(state: str) -> dict[str, float]:
    """Seconds of each part that was green at this state of the tree."""
    known = json.loads(STATE.read_text()) if STATE.exists() else {}
    return dict(known.get("green", {})) if known.get("tree") == state else {}


def run(part: str, more: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", *FORKED, *more, *files_of(part)]
    return subprocess.run(command, cwd=ROOT).returncode


def main(arguments: list[str]) -> int:
    one = arguments.pop(0) if arguments and arguments[0] in PARTS else ""
    state, failed = state_of_tree(), list[str]()
    for part in [one] if one else [part for part in PARTS if part not in green(state)]:
        print(f"\n=== Part {part} ===", flush=True)
        began = time.monotonic()
        code, took_s = run(part, arguments), round(time.monotonic() - began)
        if code:
            failed.append(part)
        elif state == state_of_tree():
            STATE.parent.mkdir(exist_ok=True)
            STATE.write_text(json.dumps({"tree": state, "green": {**green(state), part: took_s}}, indent=1))
        if took_s > MOST_S:
            print(f"=== Part {part} took {took_s / 60:.0f} minutes: split it (tests/nightly.py) ===")
    done = green(state)
    for part in PARTS:
        how = f"green, {done[part]:.0f} s" if part in done else "FAILED" if part in failed else "left"
        print(f"{part}: {how}")
    left = [part for part in PARTS if part not in done]
    said = f"{len(done)} of {len(PARTS)} parts are green at {state[:12]}"
    print(f"=== {said}; left: {', '.join(left) or 'none'} ===")
    return 1 if failed or (not one and left) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
