"""A schedule found for one shape, made to fit another of its family.

Two kinds of records, both plain JSON. ``{"tile": …}`` names a register tile of ``contraction.py``, which
rounds itself to what divides. ``{"trace": …}`` is a MetaSchedule trace without its post-processing: its
sampled tile factors are fitted to the new extents, and the post-processors run again on the result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.identity.operator import canonical_json
from tuning.routes.base import Candidate, SearchRecord
from tuning.routes.compiler.tvm.blocks import divisors
from tuning.routes.compiler.tvm.contraction import Shape

_SPLIT, _PLACE, _END = "SamplePerfectTile", "SampleComputeLocation", "EnterPostproc"
_SEED = 20  # for decisions that are made afresh


def digest_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(record))).hexdigest()


def tile_record(variant: str, shape: Shape) -> dict[str, Any]:
    return {"tile": {"variant": variant, **asdict(shape)}}


def trace_record(trace: Sequence[Any]) -> dict[str, Any]:
    """A trace's JSON without what follows its sampling: that holds sizes of its own shape."""
    return {"trace": without_postproc(trace)}


def without_postproc(trace: Sequence[Any]) -> list[Any]:
    """[instructions, decisions] up to where post-processing begins."""
    instructions, decisions = trace
    names = [instruction[0] for instruction in instructions]
    end = names.index(_END) if _END in names else len(names)
    return [list(instructions[:end]), [list(one) for one in decisions if one[0] < end]]


def refit(factors: Sequence[int], extent: int, most_innermost: int) -> list[int]:
    """Tile factors like the given ones whose product is ``extent``.

    From the innermost outwards each becomes the divisor of what is left that is nearest to it (in ratio; the
    smaller of two equals), the innermost at most ``most_innermost``; the outermost takes the rest. Factors
    that fit already stay as they are.
    """
    left, fitted = extent, []
    for place, factor in enumerate(reversed(factors[1:])):
        fits = [d for d in divisors(left) if place > 0 or d <= max(1, most_innermost)]
        nearest = min(fits, key=lambda d: (abs(math.log(d / max(1, factor))), d))
        fitted.append(nearest)
        left //= nearest
    return [left, *reversed(fitted)]


def refitted(trace: Sequence[Any], extents: Mapping[int, int]) -> list[Any]:
    """The trace with the tile factors of instruction ``i`` fitted to ``extents[i]``."""
    instructions, decisions = trace
    fitted = []
    for number, decision in decisions:
        if number in extents and instructions[number][0] == _SPLIT:
            most_innermost = int(instructions[number][2][1])
            decision = refit([int(factor) for factor in decision], extents[number], most_innermost)
        fitted.append([number, decision])
    return [list(instructions), fitted]


def without_places(trace: Sequence[Any]) -> list[Any]:
    """The trace without its decisions on where blocks are computed: they are made afresh."""
    instructions, decisions = trace
    return [list(instructions), [one for one in decisions if instructions[one[0]][0] != _PLACE]]


def extents_of(trace: Sequence[Any]) -> dict[int, int]:
    """Instruction → product of its tile factors: the extent of the loop that it cuts."""
    instructions, decisions = trace
    return {
        number: math.prod(int(factor) for factor in decision)
        for number, decision in decisions
        if instructions[number][0] == _SPLIT
    }


class Adapter:
    """Fits records to one function. Needs TVM."""

    def __init__(self, function: Any, native: Any, target: Target, setting: Setting) -> None:
        from tuning.routes.compiler.tvm.machine import machine_of
        from tuning.routes.compiler.tvm.patches import import_tvm

        tvm = import_tvm()
        from tvm.s_tir import meta_schedule as ms

        self.function, self.machine = function, machine_of(target, setting)
        self.module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        # The context owns the post-processors; they read its target.
        self.context = ms.TuneContext(
            self.module, target=native, space_generator="post-order-apply", num_threads=1
        )

    def fit(self, record: Mapping[str, Any]) -> Any | None:
        """The function's ``Schedule`` as the record says; None where that cannot be applied to it."""
        from tuning.routes.compiler.tvm.schedules import tiled

        try:
            if "tile" in record:
                wish = dict(record["tile"])
                return tiled(self.function, self.machine, wish.pop("variant"), Shape(**wish))
            trace = without_postproc(record["trace"])
        except (KeyError, TypeError, ValueError):
            return None  # not a record of ours, or of another version
        made = self._fit_trace(trace)
        return made if made is not None else self._fit_trace(without_places(trace))

    def _fit_trace(self, trace: Sequence[Any]) -> Any | None:
        """Apply twice: TVM cuts loops that the factors do not divide in some way of its own, which tells
        the extents; then with factors of those extents."""
        from tuning.routes.compiler.tvm.untuned import plain

        try:
            probe = self._applied(trace)
            extents = extents_of(plain(probe.trace.as_json()))
            made = self._applied(refitted(trace, extents))
            made.enter_postproc()
            fine = all(post.apply(made) for post in self.context.space_generator.postprocs or ())
        except Exception:  # ScheduleError, TVMError, ValueError …: TVM's errors share no base
            return None
        return made if fine else None

    def _applied(self, trace: Sequence[Any]) -> Any:
        from tvm.s_tir import Schedule, Trace

        made = Schedule(self.module, seed=_SEED)
        Trace.apply_json_to_schedule(trace, made)
        return made


def candidates_from(
    operator: Operator, target: Target, setting: Setting, records: Sequence[SearchRecord]
) -> Iterator[Candidate]:
    """Every record that can be applied to the operator, as a candidate that carries the fitted trace."""
    from tuning.routes.compiler.tvm.compile import lower_only
    from tuning.routes.compiler.tvm.heaviest import heaviest
    from tuning.routes.compiler.tvm.untuned import apply_variant, plain

    module, native = lower_only(operator, target, setting)
    name = heaviest(module)
    if name is None:
        return
    _, untuned = apply_variant(module, target, setting, "packed")
    seen: set[str] = set()
    with native:
        adapter = Adapter(module[name], native, target, setting)
        for record in records:
            made = adapter.fit(record.record)
            if made is None:
                continue
            trace = plain(made.trace.as_json())
            if (digest := digest_of({"trace": trace})) in seen:
                continue
            seen.add(digest)
            label = f"tuned for a neighbour ({record.origin})" if record.origin else "tuned before"
            yield Candidate("tvm", {"traces": {**untuned.functions, name: trace}}, label)
