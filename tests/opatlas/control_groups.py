"""Control groups as a process sees them, made of files: ``/proc/self`` and the mounted hierarchies."""

from collections.abc import Mapping
from pathlib import Path

V2 = "cgroup2 cgroup2 rw,nsdelegate"


def make_groups(
    folder: Path, own: str, mounts: Mapping[str, tuple[str, str]], files: Mapping[str, str]
) -> Path:
    """A folder that stands for ``/proc/self``. ``own``: its file ``cgroup``. ``mounts``: folder below
    ``folder`` → (the group that is mounted there, type and options). ``files``: what the groups say."""
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(own + "\n")
    lines = [
        f"{30 + number} 24 0:{26 + number} {root} {str(folder / name).replace(' ', chr(92) + '040')} "
        f"rw,nosuid shared:9 - {kind}"
        for number, (name, (root, kind)) in enumerate(mounts.items())
    ]
    (proc / "mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/sda1 rw", *lines]) + "\n")
    for name, said in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(said + "\n")
    return proc
