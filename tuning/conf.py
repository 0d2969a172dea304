"""How explorations run, as numbers. The defaults suit one machine; tests shorten the leases."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import process, variable

_TREE = Path(__file__).parents[1]
_WORKLOADS = (_TREE.parent / "shared" / "workloads", _TREE / "workloads")


@dataclass(frozen=True, kw_only=True)
class TuningConf:
    """Seconds are wall-clock."""

    broker_url: str = variable(
        "",
        "URL",
        "the Celery broker: `redis://host:6379/0`",
        name="BROKER_URL",
        shown="a folder below `OPATLAS_HOME`",
    )
    signing_key: Path | None = variable(
        None,
        "file",
        "the key that signs artifacts. Only the workers' user needs to read it: web nodes do without",
        shown="`signing_key.pem` below `OPATLAS_HOME`",
    )
    lock: Path = variable(
        lambda given: Path(tempfile.gettempdir()) / "opatlas-machine.lock",
        "file",
        "held while something is measured; all workers of a machine share it",
        shown="`opatlas-machine.lock` in the folder for temporary files",
    )
    device: str = variable(
        "",
        "device",
        "what a worker serves: `cuda:0` (by PCI bus), or the UUID of a GPU or of a part of one (MIG)",
        shown="the machine's processor",
    )
    routes: tuple[str, ...] = variable(
        "",
        "names",
        "routes by which a worker explores, separated by commas: `halide,tvm`. Those of defaults "
        "(`eager`, `onnxruntime`) always run",
        shown="every route that works there",
        read=lambda text: tuple(filter(None, (one.strip() for one in text.split(",")))),
    )
    workloads: Path = variable(
        lambda given: next(filter(Path.is_dir, _WORKLOADS), _WORKLOADS[0]),
        "folder",
        "the open logs, for benches and the bundle of a bare machine",
        shown="`shared/workloads` beside this tree, else `workloads` in it",
    )
    lease_s: float = variable(30.0, "seconds", "how long a silent worker keeps what it claimed", least=0.1)
    tick_s: float = variable(0.5, "seconds", "how often the leader looks for work to do", least=0.01)
    leader_lease_s: float = variable(5.0, "seconds", "how long a silent leader stays leader", least=0.1)
    worker_beat_s: float = variable(3.0, "seconds", "how often a worker gives a sign of life", least=0.05)
    served_s: float = variable(
        15.0, "seconds", "how long after a worker's sign of life its target counts as served", least=0.1
    )
    share_half_life_s: float = variable(
        120.0,
        "seconds",
        "half-life of the workers' time that is counted for each organisation",
        least=1,
    )
    upload_memory_mib: int = variable(2048, "MiB", "memory for parsing one upload", least=256)
    upload_cpu_s: float = variable(60.0, "seconds", "CPU time for parsing one upload", least=1)
    upload_s: float = variable(120.0, "seconds", "wall-clock time for parsing one upload", least=1)
    upload_nodes: int = variable(
        50_000,
        "nodes",
        "the most nodes of an uploaded model; the command add_model takes twice as many",
        least=1,
    )
    uploads_per_key: int = variable(
        2, "uploads", "uploads of one API key (or person) that may be received or waiting at a time", least=1
    )
    uploads_per_organisation: int = variable(4, "uploads", "the same for one organisation", least=1)
    kernels_per_organisation: int = variable(
        40, "kernels", "kernels of one organisation that may wait or be evaluated at a time", least=1
    )
    pack_s: float = variable(
        20.0,
        "seconds",
        "expected work that a worker claims at once; something more urgent waits so long at most",
        least=0.1,
    )
    build_s: float = variable(60.0, "seconds", "time for building one candidate", least=0.1)
    run_s: float = variable(20.0, "seconds", "time for checking and timing one candidate", least=0.1)
    memory_mib: int = variable(4096, "MiB", "memory for one candidate", least=64)
    candidates_s: float = variable(
        60.0, "seconds", "time that one route may spend on one operator's untuned candidates", least=0
    )
    tuning: bool = variable(True, "1 or 0", "0: nothing is tuned (stage 2)", shown="1")
    tune_slice_s: float = variable(
        10.0,
        "seconds",
        "time for searching in one slice; with building and timing it stays below 20 s",
        least=0.1,
    )
    tuning_slices: int = variable(4, "slices", "the most slices for an operator of middling worth", least=0)
    max_backlog_s: float = variable(
        6 * 3600.0,
        "seconds",
        "work in the queue per live worker; beyond it, related operators are postponed",
        least=0,
    )
    failures_days: int = variable(
        90, "days", "how long a cause of failure is kept after it last occurred; its trials stay", least=1
    )
    failures_most: int = variable(
        2000, "causes", "causes of failure kept for one organisation, and as many shared ones", least=1
    )
    declare_after_s: float = variable(
        30.0,
        "seconds",
        "if no worker has had the declared versions for so long, the service declares those that "
        "workers have; −1: only by hand",
        least=-1,
    )
    stop_grace_s: float = variable(
        3.0, "seconds", "how long a stopping worker lets a running step end by itself", least=0
    )


def conf() -> TuningConf:
    return process(TuningConf)
