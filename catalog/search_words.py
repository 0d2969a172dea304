"""What somebody types to find operators, in whatever writing, as words that operators' summaries have. PURE.

A summary is as ``MatMul float32 1000×48, 48×1536 → 1000×1536``. Sizes come as ``1000×48``, ``1000x48``,
``1000*48``, ``[1000, 48]``, ``shape=(1000, 48)`` or ``matmul(1000,48)``; types as PyTorch, NumPy, JAX or ONNX
call them; operators as ONNX, aten, ``nn`` or NumPy do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opatlas.identity.dtypes import CODES

MOST_WORDS = 8
_KEY = "o1:"
_HEXADECIMAL = re.compile(r"[0-9a-f]{6,64}")

_TIMES = r"\s*[x×✕*·]\s*"
_PRODUCT = re.compile(rf"(?<!\d)\d+(?:{_TIMES}\d+)+")
_LIST = re.compile(r"(?<![×\d<>])(?<![<>]=)\d+(?:\s*,\s*\d+)+(?![×\d])")
_BETWEEN = re.compile(r"(?:[\s,;()\[\]{}\"'→]|->)+")
_BOUND = re.compile(r"dim(>=|<=|>|<|=|:)(\d{1,15})")
_ASKED = re.compile(r"\b(dim|route)\s*(>=|<=|[<>=:])\s*")
_NAMED = re.compile(r"\b(?:dtype|shape|size|type|op_type|op)\s*[=:](?!:)")

_SPACES = (
    "torch.ops.aten.", "torch.nn.functional.", "torch.nn.", "torch.", "nn.functional.", "nn.", "f.", "numpy.",
    "np.", "jax.numpy.", "jnp.", "jax.lax.", "lax.", "jax.nn.", "tf.nn.", "tf.", "tensorproto.", "aten::",
    "aten.", "onnx::", "ai.onnx.",
)  # fmt: skip
_NOISE = {"tensor", "dtype", "shape", "torch.size"}
"""Left out beside other words; alone they may be an operator's name (Shape)."""

_TYPES = {
    "fp64": "float64", "f64": "float64", "double": "float64", "fp32": "float32", "f32": "float32",
    "float": "float32", "single": "float32", "fp16": "float16", "f16": "float16", "half": "float16",
    "bf16": "bfloat16", "i64": "int64", "long": "int64", "longlong": "int64", "i32": "int32", "int": "int32",
    "i16": "int16", "short": "int16", "i8": "int8", "char": "int8", "u8": "uint8", "byte": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "s8": "int8", "s16": "int16", "s32": "int32",
    "s64": "int64", "pred": "bool", "bool_": "bool", "boolean": "bool", "cfloat": "complex64",
    "cdouble": "complex128", "fp8": "float8",
}  # fmt: skip
"""Names of PyTorch, NumPy, JAX, ONNX and compilers, beside our own (NumPy's)."""

_OPERATORS = {
    "mm": ("matmul",), "bmm": ("matmul",), "dot": ("matmul",), "mv": ("matmul",), "baddbmm": ("matmul",),
    "addmm": ("gemm", "matmul"), "linear": ("gemm", "matmul"), "dense": ("gemm", "matmul"),
    "convolution": ("conv",), "cat": ("concat",), "concatenate": ("concat",), "stack": ("concat",),
    "sum": ("reducesum",), "mean": ("reducemean",), "amax": ("reducemax",), "amin": ("reducemin",),
    "prod": ("reduceprod",), "norm": ("reducel2", "normalization"), "embedding": ("gather",),
    "indexselect": ("gather",), "take": ("gather",), "permute": ("transpose",),
    "view": ("reshape",), "flatten": ("flatten", "reshape"), "avgpool": ("averagepool",),
    "adaptiveavgpool": ("averagepool",), "rsqrt": ("sqrt",), "upsample": ("resize",),
    "interpolate": ("resize",), "scaleddotproductattention": ("attention", "softmax"),
    "maskedfill": ("where",), "selectscatter": ("scatter",), "truediv": ("div",), "divide": ("div",),
    "truedivide": ("div",), "floordivide": ("div",), "multiply": ("mul",), "subtract": ("sub",),
    "power": ("pow",), "negative": ("neg",), "absolute": ("abs",), "maximum": ("max",), "minimum": ("min",),
    "clamp": ("clip",), "silu": ("swish", "sigmoid"), "swish": ("sigmoid",), "chunk": ("split",),
    "repeat": ("tile",), "constantpadnd": ("pad",), "tocopy": ("cast",), "astype": ("cast",),
    "indexput": ("scatternd",),
}  # fmt: skip
"""aten's and others' names that share no letters with ONNX's; without underlines and dimensions."""


@dataclass(frozen=True)
class SearchWord:
    """One thing that is asked: a summary that has one of ``texts`` (lower-case), or a key that begins so."""

    texts: tuple[str, ...] = ()
    key: str = ""

    @property
    def is_strange(self) -> bool:
        """An attribute, or what is no bound of a size: no summary has the like."""
        return any(sign in self.texts[0] for sign in "=<>") if self.texts else False


@dataclass(frozen=True)
class SizeBound:
    """``dim>=1024``: of the operator's largest size."""

    lookup: str  # Django's: gte, lte, gt, lt
    size: int


@dataclass(frozen=True)
class ServedBy:
    """``route:tvm``: what is served is of this route."""

    route: str


SearchTerm = SearchWord | SizeBound | ServedBy


def read_words(text: str) -> tuple[SearchTerm, ...]:
    """The first eight things that are asked for, whatever their case."""
    text = _ASKED.sub(r"\1\2", text.lower().replace("≥", ">=").replace("≤", "<="))
    text = _PRODUCT.sub(lambda found: re.sub(_TIMES, "×", found[0]), _NAMED.sub(" ", text))
    text = _LIST.sub(lambda found: re.sub(r"\s*,\s*", "×", found[0]), text)
    words = [word if word.startswith(_KEY) else word.strip(":.") for word in _BETWEEN.split(text)]
    words = [word for word in words if word and word not in _NOISE] or [word for word in words if word]
    return tuple(_read(word) for word in words[:MOST_WORDS])


def _read(word: str) -> SearchTerm:
    if served := re.fullmatch(r"route[:=](.+)", word):
        return ServedBy(served[1])
    if bound := _BOUND.fullmatch(word):
        return _bounded(bound[1], int(bound[2]))
    if word.startswith(_KEY):
        return SearchWord(key=word)
    key = f"{_KEY}{word}" if _HEXADECIMAL.fullmatch(word) else ""
    return SearchWord(tuple(dict.fromkeys(_writings(word))), key)


def _bounded(sign: str, size: int) -> SearchTerm:
    lookups = {">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
    return SizeBound(lookups[sign], size) if sign in lookups else SearchWord((str(size),))


def _writings(word: str) -> Iterator[str]:
    """How a summary may have it."""
    for space in _SPACES:
        word = word.removeprefix(space)
    word = word.removesuffix(".default")
    named = word.removesuffix("_t")  # C's
    if (dtype := _TYPES.get(named, named)) in CODES or named in _TYPES:
        yield f" {dtype}"  # a word of its own: no float16 of bfloat16's
        return
    yield word
    bare = word.removeprefix("_").removeprefix("native_").replace("_", "")
    bare = re.sub(r"(?<=[a-z])[123]d(withindices)?$", "", bare)
    if bare != word and bare:
        yield bare
    yield from _OPERATORS.get(bare, ())


def matches(words: Sequence[SearchTerm], summary: str, key: str) -> bool:
    """Whether an operator has all the :class:`SearchWord` s."""
    summary = summary.lower()
    return all(
        any(text in summary for text in word.texts) or bool(word.key and key.startswith(word.key))
        for word in words
        if isinstance(word, SearchWord)
    )
