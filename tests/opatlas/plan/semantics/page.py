"""``docs/semantics.md``: a summary of the table of differences. The rows themselves stay in the JSON
file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opatlas.plan.regions import DEFAULT, LABELS
from opatlas.plan.semantics.table import EVERY, KnownDifference, SemanticsTable
from tests.opatlas.plan.semantics.made import TRIED

COMPARED = (*TRIED, DEFAULT)
"""The columns. Rows of ``DEFAULT`` compare ONNX's reference with ONNX Runtime."""
_NAMES = {**LABELS, DEFAULT: "ONNX's reference"}

KINDS = {
    "gives other values": "other values, also for ordinary inputs",
    "gives float32": "float32 instead of the operator's type",
    "gives int64": "int64 instead of the operator's type",
    "gives other values for negative numbers": "other values for negative whole numbers",
    "drops NaN": "a number where ONNX Runtime gives NaN, for inputs with NaN",
    "gives no NaN where ONNX Runtime does": "a number where ONNX Runtime gives NaN, for infinite inputs",
    "gives NaN where ONNX Runtime does not": "NaN where ONNX Runtime gives a number",
    "gives other values for NaN": "other values for inputs with NaN",
    "gives other values for infinity": "other values for infinity",
    "gives other values for negative infinity": "other values for negative infinity",
    "gives other values beyond what float32 holds": "other values for whole numbers beyond 2²⁴",
    "is computed in 32 bits": "64-bit numbers cut to 32 bits",
    "gives other values beyond 32 bits": "other values for numbers beyond 32 bits",
    "saturates where ONNX Runtime wraps": "the type's limit on overflow, where ONNX Runtime wraps around",
    "gives other values beyond the type's range": "other values on overflow",
}
"""Every kind of difference as the data names it, and as the page says it."""

_HEAD = """# Where do frameworks compute something else than ONNX Runtime?

A session gives ONNX Runtime's values, whichever framework runs the model. Frameworks agree with ONNX
Runtime on ordinary numbers, with few exceptions. They differ at the edges: NaN, infinities, whole numbers
that float32 cannot hold, results that overflow. We ran every operator in every framework over such values
and recorded each difference.

[semantics.json](../opatlas/plan/semantics/semantics.json) has every row, and sessions read it. This page
sums it up.

## How does a session use the table?

1. **Before a framework runs a model.** The session bounds the values that each node can meet, starting from
   the model's inputs. A square root of a sum of squares gives no NaN. An index into 30,000 rows fits 32
   bits. A product of two 64-bit numbers may not. If a node can meet a value for which the framework
   differs, the framework does not run the model. `session.refused` says why.
2. **Before a kernel of the catalogue runs a node.** No kernel gets a node where NaN can arise and a
   framework is known to lose it.
3. **When candidates are compared.** Every candidate must agree with ONNX Runtime over several examples: the
   one that is timed, wide values, and values at the types' limits.
4. **Before each run.** The session looks at the inputs. ONNX Runtime itself runs those with NaN,
   infinities, floats beyond 10¹⁵, whole numbers beyond 2²⁴ (in types of 32 bits or more), indices beyond
   their axis, or divisors of 0. Looking takes 2 µs for 1,000 floats, 17 µs for an image of 600 kB.

## How do I look an operator up?

The file has one line for each row: framework, operator, type, when, what, an example (ONNX Runtime's value,
then the framework's), and the attributes that a node must have. `when` is one of:

| when | the difference shows |
| --- | --- |
| `always` | for ordinary values |
| `nan`, `+inf`, `-inf` | if such a number is read or computed |
| `negative` | for negative whole numbers |
| `large` | for whole numbers beyond 2²⁴ |
| `wide` | for whole numbers beyond 32 bits |
| `wraps` | if a result overflows its type |

```sh
grep '"openvino", "Abs"' opatlas/plan/semantics/semantics.json
```

Rows of the operator `*` say what most operators of a type have in common. They stand for operators that
were never run. What `torch.compile` was never run with counts as PyTorch eager.
"""

_KINDS = """
## In which ways do they differ?

Numbers count pairs of an operator and a type. The last column compares ONNX's reference evaluator with ONNX
Runtime. Sessions do not run it; it shows where ONNX Runtime itself departs from the standard.

"""

_OPERATORS = """
## Which operators differ?

OpenVINO computes most float64 operators in float32.

"""

_MADE = """
## How is this kept true?

`python -m tests.opatlas.plan.semantics.made` runs everything again and writes the file and this page. It
ran with {versions}. `make test` repeats a sample. `make test-all` repeats all of it, of `torch.compile` a
sample. Rows from several processors are kept, since libraries choose their code by the processor.
"""


def page(table: SemanticsTable) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(table.versions.items()))
    parts = [_HEAD, "\n## How many operators agree?\n\n", _agreeing(table), _KINDS, _kinds(table)]
    return "".join([*parts, _OPERATORS, _operators(table), _MADE.format(versions=versions)])


def _agreeing(table: SemanticsTable) -> str:
    def line(framework: str) -> tuple[str, ...]:
        tried, rows = table.tried[framework], _rows(table, framework)
        operators, pairs = len(tried), sum(map(len, tried.values()))
        differing = len({one.op_type for one in rows})
        counts = (operators, operators - differing, pairs, pairs - len(_pairs(rows)))
        return (_NAMES[framework], *map(str, counts))

    head = ("framework", "operators run", "agree everywhere", "operator and type pairs", "agree everywhere")
    return _markdown([head, *map(line, TRIED)])


def _kinds(table: SemanticsTable) -> str:
    rows = [one for one in table.differences if one.op_type != EVERY]

    def line(kind: str) -> tuple[str, ...]:
        of_kind = [one for one in rows if one.why == kind]
        counts = [len(_pairs(one for one in of_kind if one.framework == each)) for each in COMPARED]
        return (KINDS[kind], *(str(count or "") for count in counts), _example(of_kind))

    return _markdown([("it gives", *map(_NAMES.get, COMPARED), "example"), *map(line, KINDS)])


def _example(rows: Sequence[KnownDifference]) -> str:
    """The first of a framework's rows whose two values look different."""
    for one in sorted(rows, key=lambda one: COMPARED.index(one.framework)):
        wanted, _, found = one.shown.partition(" is ")
        if wanted != found:
            kind = one.element.replace(">", " to ")
            return f"{_NAMES[one.framework]}, `{one.op_type}` of {kind}: {found} instead of {wanted}"
    return ""


def _operators(table: SemanticsTable) -> str:
    def line(framework: str) -> tuple[str, ...]:
        rows = _rows(table, framework)
        always = [one for one in rows if one.aspect == "always"]
        ordinary = {one.op_type for one in always if one.element != "float64"}
        in_float64 = {one.op_type for one in always} - ordinary
        at_edges = {one.op_type for one in rows} - ordinary - in_float64
        return (_NAMES[framework], *map(_names, (ordinary, in_float64, at_edges)))

    head = ("framework", "for ordinary values", "for ordinary values in float64 alone", "at the edges alone")
    return _markdown([head, *map(line, TRIED)])


def _names(operators: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(operators))


def _rows(table: SemanticsTable, framework: str) -> list[KnownDifference]:
    return [one for one in table.differences if one.framework == framework and one.op_type != EVERY]


def _pairs(rows: Iterable[KnownDifference]) -> set[tuple[str, str]]:
    return {(one.op_type, one.element) for one in rows}


def _markdown(lines: Sequence[Sequence[str | None]]) -> str:
    head, *rows = (f"| {' | '.join(map(str, line))} |" for line in lines)
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *rows]) + "\n"
