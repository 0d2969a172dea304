"""The table of frameworks' semantics as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from opatlas.plan.regions import DEFAULT, LABELS
from opatlas.plan.semantics.table import EVERY, KnownDifference, SemanticsTable
from tests.opatlas.plan.semantics.made import TRIED

_HEAD = """# Frameworks' semantics

Where operators of other frameworks give other values than ONNX Runtime's. Each operator is run in each
framework over values at its edges, as a session would run it there: NaN, infinities, negative numbers, whole
numbers that float32 does not hold or that need more than 32 bits, results beyond the type.
`python -m tests.opatlas.plan.semantics.made` makes this page and `opatlas/plan/semantics/semantics.json`,
which sessions read. A test recomputes a sample of it each day, and all of it each night. Rows of several
processors are in it: libraries choose their code by the processor.

## How it is used
- A framework runs a model only if no node of it can meet what it computes otherwise. What a node can meet is
  bounded from the model's inputs on. A square root of a sum of squares meets no NaN; an index into 30,000
  rows fits 32 bits; a product of two 64-bit numbers may not.
- A session that left ONNX Runtime looks at each run's inputs first. Some make that run ONNX Runtime's own:
  NaN and infinities, floats beyond 10¹⁵, whole numbers beyond 2²⁴ in types of 32 bits or more, indices beyond
  their axis, divisors of 0. The look takes 2 µs for 1,000 floats and 17 µs for an image of 600 kB.
- Whoever runs a model has to agree with ONNX Runtime over several examples as well: the one that it is timed
  with; wide values, with masks of both kinds and whole numbers over their range; and those at the types'
  ends. Indices stay within their axis, and what decides sizes stays as it is.
- A kernel of the catalogue takes no node in which NaN can arise and may get lost.
- An operator that is in no row is taken to do what most of that framework's operators of the type do (`*`),
  in `torch.compile` what it does in PyTorch eager.
- `session.refused` says which framework was left out, and why.

The table was made with {versions}.

## What differs
*When* says what has to be met: `always` nothing particular; `nan`, `+inf` and `-inf` such a number, read or
made; `negative` negative whole numbers; `large` whole numbers beyond 2²⁴; `wide` those beyond 32 bits;
`wraps` results beyond the type. *Shown* is one element: what ONNX Runtime gives, then the framework.
"""


def page(table: SemanticsTable) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(table.versions.items()))
    parts = [_HEAD.format(versions=versions)]
    for framework in TRIED:
        rows = [one for one in table.differences if one.framework == framework]
        tried = table.tried.get(framework, {})
        count = sum(map(len, tried.values()))
        parts.append(
            f"### {LABELS[framework]}\n\n{len(tried)} operators, {count} with their types; "
            f"{_differing(rows)} of these differ somewhere.\n\n{_table(rows)}"
        )
    own = [one for one in table.differences if one.framework == DEFAULT]
    parts.append(
        "## ONNX Runtime beside ONNX's reference\n\nA session gives ONNX Runtime's values, also where ONNX's "
        "reference has others. Here the first value shown is ONNX Runtime's, the second the reference's.\n\n"
        + _table(own)
    )
    return "\n".join(parts)


def _differing(rows: Sequence[KnownDifference]) -> int:
    return len({(one.op_type, one.element) for one in rows if one.op_type != EVERY})


def _table(rows: Iterable[KnownDifference]) -> str:
    """A line for what is the same of several types."""
    lines = ["| operator | types | when | what | shown |", "| --- | --- | --- | --- | --- |"]
    key = _key
    for (op_type, aspect, why, about), same in groupby(sorted(rows, key=key), key=key):
        found = list(same)
        types = ", ".join(dict.fromkeys(one.element.replace(">", " to ") for one in found))
        name = f"`{op_type}`" + (f" ({about})" if about else "")
        lines.append(f"| {name} | {types} | `{aspect}` | {why} | {found[0].shown} |")
    return "\n".join(lines) + "\n"


def _key(one: KnownDifference) -> tuple[str, str, str, str]:
    about = ", ".join(f"{name}={value}" for name, value in one.attributes.items())
    return one.op_type, one.aspect, one.why, about
