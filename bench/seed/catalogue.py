"""An invented catalogue of a large service: organisations, operators, implementations, bests and history.

What ``bench.seed.traffic``, ``bench.seed.explorations`` and ``bench.seed.people`` add to. Nothing here was
measured: every label and route begins with ``synthetic``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from django.utils import timezone
from numpy.typing import NDArray

from bench.seed.bulk import insert
from bench.seed.implementations import INVENTED, LABEL, NAME, NotEmpty, artifact, evidence
from catalog import models
from catalog.registry import default_organisation, register_environment

DAYS = 90
ORGANISATIONS = 12
FORMER = 50
"""One operator in so many has its compiler's evidence of the former version too: what A/B compares."""

TILES = (
    (("eager", "library"), ("onednn", "library"), ("tvm", "compiler"), ("inductor", "compiler")),
    (("eager", "library"), ("onnxruntime", "library"), ("tvm", "compiler"), ("cpp", "manual")),
    (("eager", "library"), ("onednn", "library"), ("halide", "compiler"), ("xla", "compiler")),
    (("eager", "library"), ("mkl", "library"), ("openblas", "library"), ("tvm", "compiler")),
    (("eager", "library"), ("onnxruntime", "library"), ("inductor", "compiler"), ("cpp", "manual")),
)
"""The four routes of an operator, by its number modulo five: all methods are mixed."""

_KINDS: tuple[tuple[str, float], ...] = (
    ("Conv", 0.24), ("MatMul", 0.20), ("Gemm", 0.12), ("Add", 0.08), ("Relu", 0.06), ("Softmax", 0.05),
    ("LayerNormalization", 0.05), ("Conv+Relu", 0.05), ("Mul", 0.04), ("Attention", 0.04), ("Gelu", 0.03),
    ("BatchNormalization", 0.02), ("ReduceMean", 0.01), ("MaxPool", 0.01),
)  # fmt: skip
_DTYPES = ("float32", "float16", "int8")


@dataclass(frozen=True)
class CatalogueSize:
    """How many rows of each; everything else follows."""

    implementations: int
    usage: int
    explorations: int

    @property
    def known(self) -> int:
        """Operators with implementations, four each."""
        return max(self.implementations // 4, 20)

    @property
    def missed(self) -> int:
        """Operators that were asked for and have none (yet)."""
        return max(self.known // 10, self.explorations // 6, 20)


@dataclass
class World:
    """What later parts need to know of earlier ones, by column. Times in µs; ``moment`` in seconds."""

    size: CatalogueSize
    organisations: list[int]
    target: models.Target
    setting: models.Setting
    environments: dict[str, list[models.Environment]]  # route → former and declared version
    began: datetime  # at midnight, UTC
    now_s: int  # since then
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))
    operators: range = range(0)  # the known ones first, then the missed
    families: list[str] = field(default_factory=list)
    default_us: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    implementations: range = range(0)  # four by four, in the operators' order
    median_us: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # of each implementation
    winner: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # 0…3, by operator
    known_at_s: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # since ``began``

    @property
    def place(self) -> dict[str, int]:
        """The columns that say where."""
        return {"target_id": self.target.pk, "setting_id": self.setting.pk}

    def moment(self, seconds: float) -> str:
        """A moment as both databases read it, so many seconds after the beginning."""
        return (self.began + timedelta(seconds=float(seconds))).strftime("%Y-%m-%d %H:%M:%S")

    def moments(self, seconds: NDArray[Any]) -> list[str]:
        return [
            text.replace("T", " ")
            for text in np.datetime_as_string(
                np.datetime64(self.began.replace(tzinfo=None), "s") + seconds.astype("timedelta64[s]")
            ).tolist()
        ]


def routes_of(number: int) -> list[tuple[str, str]]:
    """(route, method) of a known operator's four implementations."""
    return [(f"{NAME}-{route}", method) for route, method in TILES[number % len(TILES)]]


def begin(size: CatalogueSize) -> World:
    """The small tables. Raises NotEmpty where the database has results, measured or invented."""
    if models.Implementation.objects.exists() or models.Usage.objects.exists():
        raise NotEmpty("This database holds results already: seed an empty one of its own.")
    host = default_organisation()
    tenants = [
        models.Organisation.objects.get_or_create(name=f"{NAME} tenant {number}")[0]
        for number in range(1, ORGANISATIONS)
    ]
    now = timezone.now().astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    routes = sorted({route for tile in TILES for route, _ in tile})
    environments = {
        f"{NAME}-{route}": [register_environment({f"{NAME}-{route}": version}) for version in ("1.0", "2.0")]
        for route in routes
    }
    target = _target(now)
    for route, versions in environments.items():
        models.DeclaredEnvironment.objects.get_or_create(
            target=target, route=route, defaults={"environment": versions[1]}
        )
    return World(
        size, [host.pk, *(row.pk for row in tenants)], target, _setting(), environments,
        midnight - timedelta(days=DAYS - 1), int((now - midnight).total_seconds()) + (DAYS - 1) * 86_400,
    )  # fmt: skip


def _target(now: datetime) -> models.Target:
    description = {
        "kind": "cpu", "arch": "zen3", "vendor": "AuthenticAMD", "isa": "x86_64", "cores": 8,
        "features": ["avx2", "fma"], "cache_bytes": {"l1d": 32768, "l2": 524288, "l3": 33554432},
    }  # fmt: skip
    row, _ = models.Target.objects.get_or_create(
        key="t1:" + hashlib.sha256(NAME.encode()).hexdigest(),
        defaults={
            "kind": "cpu",
            "arch": "zen3",
            "capability": "cpu.synthetic",
            "description": description,
            "served_until": now,
        },
    )
    return row


def _setting() -> models.Setting:
    row, _ = models.Setting.objects.get_or_create(
        key="s1:" + hashlib.sha256(NAME.encode()).hexdigest(),
        defaults={"threads": 8, "cache": "warm", "description": {"threads": 8, "cache": "warm"}},
    )
    return row


def add_operators(world: World) -> None:
    """Operators that cannot be asked for: their keys are digests of numbers."""
    count = world.size.known + world.size.missed
    random = world.random
    kinds = random.choice(len(_KINDS), count, p=[share for _, share in _KINDS])
    dtypes = random.choice(len(_DTYPES), count, p=[0.8, 0.15, 0.05])
    flops = np.exp(random.normal(17, 2.5, count))
    channels = (2 ** random.integers(4, 12, count)).tolist()
    edges = random.choice([7, 14, 28, 56, 112, 128, 197, 512], count).tolist()
    world.families = [_KINDS[kind][0] for kind in kinds]
    known = world.size.known
    world.known_at_s = np.zeros(count, np.int64)
    late = random.random(count) < 0.5
    world.known_at_s[late] = random.integers(0, (DAYS - 25) * 86_400, int(late.sum()))
    world.known_at_s[known:] = np.iinfo(np.int64).max
    world.operators = insert(
        models.Operator,
        {
            "key": sorted(f"o1:{hashlib.sha256(f'{NAME} {n}'.encode()).hexdigest()}" for n in range(count)),
            "graph": [
                json.dumps(_graph(family, channel, edge, n))
                for n, (family, channel, edge) in enumerate(zip(world.families, channels, edges, strict=True))
            ],
            "op_type": world.families,
            "summary": [
                f"{family} 1×{channel}×{edge}×{edge} {_DTYPES[dtype]} ({NAME} {n})"
                for n, (family, channel, edge, dtype) in enumerate(
                    zip(world.families, channels, edges, dtypes.tolist(), strict=True)
                )
            ],
            "dtype": [_DTYPES[dtype] for dtype in dtypes],
            "flops": flops.round(),
            "bytes_moved": (flops / random.uniform(4, 60, count)).round(),
            "created_at": world.moments(np.minimum(world.known_at_s, (DAYS - 1) * 86_400)),
        },
    )
    world.default_us = np.maximum(flops / 4e4 * random.lognormal(0, 0.5, count), 1.5)


def _graph(family: str, channel: int, edge: int, number: int) -> dict[str, Any]:
    shape = [1, channel, edge, edge]
    return {
        "opset": 23,
        NAME: number,
        "inputs": [{"dtype": "float32", "shape": shape, "role": "runtime"}],
        "nodes": [{"op": family.split("+")[0], "inputs": [0], "outputs": [1], "attrs": {}}],
        "outputs": [1],
        "produced": [{"dtype": "float32", "shape": shape, "role": "runtime"}],
    }


def add_results(world: World) -> None:
    """Implementations with their measurements, bests in order of rank, and how the best changed."""
    known = world.size.known
    owners = np.repeat(np.asarray(world.operators[:known]), 4)
    names = [pair for number in range(known) for pair in routes_of(number)]
    routes, methods = [route for route, _ in names], [method for _, method in names]
    ratios = np.exp(world.random.normal(0.15, 0.4, (known, 4)))
    ratios[:, 0] = 1.0  # eager is the default
    world.winner = ratios.argmax(axis=1)
    default_us = np.repeat(world.default_us[:known], 4)
    world.median_us = default_us / ratios.ravel()
    created = world.moments(np.repeat(world.known_at_s[:known], 4))
    made_by = artifact(world.setting)
    scopes = _scopes(world)
    made = {
        **world.place,
        "operator_id": owners,
        "scope": scopes,
        "route": routes,
        "method": methods,
    }
    numbers = {route: versions[1].pk for route, versions in world.environments.items()}
    world.implementations = insert(
        models.Implementation,
        {
            **made,
            **INVENTED,
            "environment_id": [numbers[route] for route in routes],
            "artifact_id": made_by.pk,
            "created_at": created,
        },
    )
    proof = evidence(world.median_us, ratios.ravel(), world.random)
    measurements = insert(
        models.Measurement,
        {
            "implementation_id": world.implementations, **proof, "created_at": created,
            "samples_us": [f"[{median}]" for median in proof["median_us"].tolist()],
            "tier": "T2", "purpose": NAME, "max_error": 1e-7, "tolerance": 1e-4,
        },
    )  # fmt: skip
    insert(
        models.Best,
        {
            **made, "label": LABEL, "kind": "recipe", "implementation_id": world.implementations,
            "measurement_id": measurements, "artifact_sha256": made_by.sha256, "needs": "", **proof,
            "rank": (-ratios).argsort(axis=1).argsort(axis=1).ravel(),
            "equal": False, "measured_at": created, "published_at": created,
        },
    )  # fmt: skip
    _add_former(world, made_by)
    _add_changes(world)


def _scopes(world: World) -> list[str]:
    """One operator in forty is a tenant's own."""
    owners = world.organisations
    return [
        f"org:{owners[number % len(owners)]}" if number % 40 == 39 else models.SHARED
        for number in range(world.size.known)
        for _ in range(4)
    ]


def _add_former(world: World, made_by: models.Artifact) -> None:
    """Evidence of each compiler's version before, beside the declared one's."""
    chosen = np.arange(0, world.size.known, FORMER)
    slots = np.asarray(
        [next(i for i, p in enumerate(routes_of(n)) if p[1] == "compiler") for n in chosen.tolist()]
    )
    pairs = [routes_of(n)[slot] for n, slot in zip(chosen.tolist(), slots.tolist(), strict=True)]
    median_us = world.median_us[chosen * 4 + slots] * np.exp(world.random.normal(0.02, 0.1, len(chosen)))
    implementations = insert(
        models.Implementation,
        {
            **world.place, "operator_id": chosen + world.operators.start, "scope": models.SHARED,
            "route": [route for route, _ in pairs], "method": [method for _, method in pairs],
            **INVENTED, "artifact_id": made_by.pk, "created_at": world.moment(0),
            "environment_id": [world.environments[route][0].pk for route, _ in pairs],
        },
    )  # fmt: skip
    insert(
        models.Measurement,
        {
            "implementation_id": implementations,
            **evidence(median_us, world.default_us[chosen] / median_us, world.random),
            "samples_us": "[]",
            "tier": "T2",
            "purpose": NAME,
            "created_at": world.moment(0),
        },
    )


def _add_changes(world: World) -> None:
    """The default first, then the winner where it is another one."""
    known = world.size.known
    firsts = np.asarray(world.implementations[::4])
    won = np.flatnonzero(world.winner)
    both = np.concatenate([np.arange(known), won])
    after = np.concatenate([firsts, firsts[won] + world.winner[won]])
    order = np.argsort(both, kind="stable")
    insert(
        models.BestChange,
        {
            **world.place,
            "operator_id": both[order] + world.operators.start,
            "scope": models.SHARED,
            "before_id": [None if n < known else int(firsts[both[n]]) for n in order],
            "after_id": after[order],
            "reason": LABEL,
            "created_at": world.moments(world.known_at_s[both[order]] + np.where(order < known, 0, 40)),
        },
    )
