"""Makes the table of frameworks' semantics: ``python -m tests.opatlas.plan.semantics.made`` runs every probe
in every framework, and writes ``opatlas/plan/semantics/semantics.json`` and ``docs/semantics.md``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from opatlas.client.machine import installed_versions
from opatlas.errors import OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.plan.closeness import is_close
from opatlas.plan.regions import DEFAULT, ModelPart, open_region
from opatlas.plan.semantics.intervals import MINUS, NAN, PLUS, SPECIAL
from opatlas.plan.semantics.ranges import ALWAYS, LARGE, NEGATIVE, WIDE, WRAPS
from opatlas.plan.semantics.table import EVERY, PATH, KnownDifference, SemanticsTable, known_table
from tests.opatlas.plan.semantics.probes import Probe, probes

Outputs = list[np.ndarray]
Answers = list[Outputs | None]
"""Of a probe's feeds, None where who was asked fails."""
TRIED = ("openvino", "pytorch", "xla", "torch.compile")
LIBRARIES = ("onnxruntime", "openvino", "torch", "jax", "onnx")
BATCH = 40
"""Probes that torch.compile takes at once: it compiles for seconds, whatever the size."""
MULTIPLYING = ("Mul", "Pow", "ReduceProd", "ReduceSumSquare", "ReduceL2")
PAGE = Path(__file__).parents[4] / "docs" / "semantics.md"


def expected(probe: Probe) -> Answers | None:
    """What ONNX Runtime gives; None where it has no such operator."""
    try:
        onnx.checker.check_model(probe.model, full_check=True)
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = ort.InferenceSession(
            probe.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [session.run(None, feed) for _, feed in probe.feeds]
    except Exception:  # of ONNX Runtime's exceptions none has a base of its own
        return None


def by_reference(probe: Probe) -> Answers:
    """What ONNX's own reference gives."""
    try:
        evaluator = ReferenceEvaluator(probe.model)
    except Exception:  # whatever it lacks
        return [None] * len(probe.feeds)
    return [_quietly(evaluator, feed) for _, feed in probe.feeds]


def _quietly(evaluator: ReferenceEvaluator, feed: Mapping[str, np.ndarray]) -> Outputs | None:
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(one) for one in evaluator.run(None, dict(feed))]
    except Exception:
        return None


def by_framework(framework: str, probe: Probe) -> Answers | None:
    """None where the framework refuses the operator, so that it never runs there."""
    try:
        graph = ModelGraph(probe.model.SerializeToString())
        region = open_region(framework, ModelPart.whole(graph), 1)
    except OpatlasError:
        return None
    answers: Answers = []
    for _, feed in probe.feeds:
        try:
            answers.append(region.run([feed[name] for name in graph.input_names]))
        except OpatlasError:  # a run that fails goes over to ONNX Runtime
            answers.append(None)
    return answers


def in_batches(framework: str, given: Sequence[Probe]) -> list[Answers | None]:
    """As :func:`by_framework`, of probes that the framework's eager calls express, many as one model."""
    if len(given) <= 1:
        return [by_framework(framework, one) for one in given]
    rounds = max(len(one.feeds) for one in given)
    feeds = [
        (ALWAYS, {f"{at}_{name}": array for at, one in enumerate(given)
                  for name, array in one.feeds[min(number, len(one.feeds) - 1)][1].items()})
        for number in range(rounds)
    ]  # fmt: skip
    answers = by_framework(framework, replace(given[0], model=_joined(given), feeds=feeds))
    if answers is None or any(one is None for one in answers):
        half = len(given) // 2
        return [*in_batches(framework, given[:half]), *in_batches(framework, given[half:])]
    counts = np.cumsum([0, *(len(one.model.graph.output) for one in given)])
    return [
        [(made or [])[counts[at] : counts[at + 1]] for made in answers[: len(one.feeds)]]
        for at, one in enumerate(given)
    ]


def _joined(given: Sequence[Probe]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(given[0].model)
    del made.graph.node[:], made.graph.input[:], made.graph.output[:], made.graph.initializer[:]
    for at, one in enumerate(given):
        graph = onnx.compose.add_prefix(one.model, f"{at}_").graph
        made.graph.node.extend(graph.node)
        made.graph.input.extend(graph.input)
        made.graph.output.extend(graph.output)
        made.graph.initializer.extend(graph.initializer)
    return made


def compared(framework: str, probe: Probe, found: Answers, wanted: Answers) -> Iterator[KnownDifference]:
    for (aspect, _), mine, theirs in zip(probe.feeds, found, wanted, strict=True):
        if mine is not None and theirs is not None and not all(map(is_close, mine, theirs)):
            one, other = next(pair for pair in zip(mine, theirs, strict=True) if not is_close(*pair))
            told = aspect_of(aspect, probe.op_type, probe.element)
            why, shown = why_different(told, one, other), shown_as(one, other)
            yield KnownDifference(framework, probe.op_type, probe.element, told, why, shown, probe.about)


def aspect_of(aspect: str, op_type: str, element: str) -> str:
    """Of large numbers products are beyond 32 bits, or wrap."""
    if aspect == LARGE and op_type in MULTIPLYING:
        return WIDE if element.endswith("64") else WRAPS
    return aspect


def why_different(aspect: str, found: np.ndarray, wanted: np.ndarray) -> str:
    """In words that follow 'which'."""
    if found.shape != wanted.shape:
        return "gives another shape"
    if found.dtype != wanted.dtype:
        return f"gives {found.dtype}"
    if aspect in SPECIAL and wanted.dtype.kind == "f":
        mine, theirs = np.isnan(found), np.isnan(wanted)
        if (theirs & ~mine).any():
            return "drops NaN" if aspect == NAN else "gives no NaN where ONNX Runtime does"
        if (mine & ~theirs).any():
            return "gives NaN where ONNX Runtime does not"
    if aspect == WIDE and wanted.dtype.kind in "iu" and _is_wrapped(found, wanted):
        return "is computed in 32 bits"
    if aspect == WRAPS and wanted.dtype.kind in "iu" and _is_saturated(found, wanted):
        return "saturates where ONNX Runtime wraps"
    return "gives other values" + _WHERE[aspect]


_WHERE = {
    ALWAYS: "",
    NAN: " for NaN",
    PLUS: " for infinity",
    MINUS: " for negative infinity",
    LARGE: " beyond what float32 holds",
    WIDE: " beyond 32 bits",
    NEGATIVE: " for negative numbers",
    WRAPS: " beyond the type's range",
}


def _is_wrapped(found: np.ndarray, wanted: np.ndarray) -> bool:
    return _fits_32_bits(found) and not _fits_32_bits(wanted)


def _fits_32_bits(array: np.ndarray) -> bool:
    low, high = np.iinfo(np.int32).min, np.iinfo(np.uint32).max
    return bool(((array.astype(np.float64) >= low) & (array.astype(np.float64) <= high)).all())


def _is_saturated(found: np.ndarray, wanted: np.ndarray) -> bool:
    limits, apart = np.iinfo(wanted.dtype), found != wanted
    return bool(np.isin(found[apart], (limits.min, limits.max)).all())


def shown_as(found: np.ndarray, wanted: np.ndarray) -> str:
    """One element as both give it."""
    if found.shape != wanted.shape:
        return f"{list(wanted.shape)} is {list(found.shape)}"
    apart = np.array(
        [not is_close(one, other) for one, other in zip(_each(found), _each(wanted), strict=True)]
    )
    at = int(np.argmax(apart)) if apart.any() else int(np.argmax(np.abs(np.subtract(*_wide(found, wanted)))))
    return f"{_said(wanted.reshape(-1)[at])} is {_said(found.reshape(-1)[at])}"


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [np.nan_to_num(one.reshape(-1).astype(np.float64)) for one in arrays]


def _each(array: np.ndarray) -> Iterator[np.ndarray]:
    return (np.asarray(one) for one in array.reshape(-1))


def _said(value: np.generic) -> str:
    return f"{value:.6g}" if value.dtype.kind == "f" else str(value)


def table_of(given: Iterable[Probe], frameworks: Sequence[str] = TRIED, tell: bool = False) -> SemanticsTable:
    known = [(one, wanted) for one in given if (wanted := expected(one)) is not None]
    tried: dict[str, dict[str, list[str]]] = {}
    differences: list[KnownDifference] = []
    for one, wanted in known:
        differences += compared(DEFAULT, one, by_reference(one), wanted)
    for framework in frameworks:
        answers = _asked(framework, [one for one, _ in known], tell)
        for (one, wanted), found in zip(known, answers, strict=True):
            if found is None:
                continue
            types = tried.setdefault(framework, {}).setdefault(one.op_type, [])
            types += [] if one.element in types else [one.element]
            differences += compared(framework, one, found, wanted)
    differences += _common(differences, known, tried)
    return SemanticsTable(installed_versions(LIBRARIES), tried, _once(differences))


def _asked(framework: str, given: Sequence[Probe], tell: bool) -> Iterator[Answers | None]:
    if framework != "torch.compile":
        for at, one in enumerate(given):
            if tell and at % 100 == 0:
                print(framework, at, "of", len(given), file=sys.stderr, flush=True)
            yield by_framework(framework, one)
        return
    expressed = [by_framework("pytorch", one) is not None for one in given]
    taken = [one for one, can in zip(given, expressed, strict=True) if can]
    answers: list[Answers | None] = []
    for first in range(0, len(taken), BATCH):
        if tell:
            print(framework, first, "of", len(taken), file=sys.stderr, flush=True)
        answers += in_batches(framework, taken[first : first + BATCH])
    left = iter(answers)
    for can in expressed:
        yield next(left) if can else None


def _common(
    differences: Sequence[KnownDifference],
    known: Sequence[tuple[Probe, Answers]],
    tried: Mapping[str, Mapping[str, object]],
) -> Iterator[KnownDifference]:
    """What most of a framework's operators of a type have in common, for those that were never tried."""
    ran = Counter(
        (framework, one.element, aspect)
        for framework, ops in tried.items()
        for one in {(one.op_type, one.element): one for one, _ in known if one.op_type in ops}.values()
        for aspect in {aspect for aspect, _ in one.feeds}
    )
    rows = {(one.framework, one.op_type, one.element, one.aspect): one for one in differences}
    differ = Counter((one.framework, one.element, one.aspect) for one in rows.values())
    for (framework, element, aspect), count in differ.items():
        if framework != DEFAULT and 2 * count > ran[framework, element, aspect] and count > 3:
            example = next(
                one
                for one in rows.values()
                if (one.framework, one.element, one.aspect) == (framework, element, aspect)
            )
            yield replace(example, op_type=EVERY, attributes={}, shown="")


def _once(differences: Iterable[KnownDifference]) -> list[KnownDifference]:
    found: dict[tuple[object, ...], KnownDifference] = {}
    for one in differences:
        found.setdefault(
            (one.framework, one.op_type, one.element, one.aspect, repr(sorted(one.attributes.items()))), one
        )
    return sorted(
        found.values(),
        key=lambda one: (one.framework, one.op_type, one.element, one.aspect, repr(one.attributes)),
    )


def written(table: SemanticsTable) -> str:
    """As it is kept: a line a row."""
    document = table.to_json()
    rows = ",\n".join("  " + json.dumps(row) for row in document["differences"])
    tried = ",\n".join(
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(op)}: {json.dumps(types)}" for op, types in sorted(ops.items()))
        + "\n  }"
        for name, ops in document["tried"].items()
    )
    versions = json.dumps(document["versions"])
    head = f'{{\n "versions": {versions},\n "tried": {{\n{tried}\n }},\n'
    return f'{head} "differences": [\n{rows}\n ]\n}}\n'


def with_other_processors(table: SemanticsTable, before: SemanticsTable) -> SemanticsTable:
    """The same with what the table before says beyond it, of the same versions. Libraries choose code by
    the processor: a difference that one processor shows may be met by any job."""
    if dict(before.versions) != dict(table.versions):
        return table
    here = {row_of(one) for one in table.differences}
    left = [one for one in before.differences if row_of(one) not in here]
    tried = {
        framework: {
            op: sorted({*table.tried[framework].get(op, ()), *before.tried.get(framework, {}).get(op, ())})
            for op in {*table.tried[framework], *before.tried.get(framework, {})}
        }
        for framework in table.tried
    }
    return SemanticsTable(table.versions, tried, _once([*table.differences, *left]))


def row_of(one: KnownDifference) -> tuple[object, ...]:
    """What a row is of; how far two are apart is a matter of the processor."""
    attributes = json.dumps(dict(one.attributes), sort_keys=True)
    return one.framework, one.op_type, one.element, one.aspect, attributes


def main() -> None:
    table = with_other_processors(table_of(probes(), tell=True), known_table())
    PATH.write_text(written(table))
    from tests.opatlas.plan.semantics.page import page

    PAGE.write_text(page(table))


if __name__ == "__main__":
    main()
