"""The compiler flags that a submitted kernel may ask for, and what CPU features they need.

Allow-lists, by language: anything that could read another file, load a plug-in, change what is linked or
start a program is on none. What a flag may do to the numbers (``-ffast-math``) the checker judges.
"""

from __future__ import annotations

from collections.abc import Sequence

from opatlas.errors import CallerError

FEATURES = {
    "-mavx": ("avx",),
    "-mavx2": ("avx", "avx2"),
    "-mfma": ("avx", "fma"),
    "-mf16c": ("avx", "f16c"),
    "-mbmi": ("bmi1",),
    "-mbmi2": ("bmi2",),
    "-msse4.1": ("sse4_1",),
    "-msse4.2": ("sse4_2",),
    "-mpopcnt": ("popcnt",),
    "-mavx512f": ("avx", "avx2", "fma", "avx512f"),
    "-mavx512bw": ("avx", "avx2", "fma", "avx512f", "avx512bw"),
    "-mavx512cd": ("avx", "avx2", "fma", "avx512f", "avx512cd"),
    "-mavx512dq": ("avx", "avx2", "fma", "avx512f", "avx512dq"),
    "-mavx512vl": ("avx", "avx2", "fma", "avx512f", "avx512vl"),
    "-mavx512vnni": ("avx", "avx2", "fma", "avx512f", "avx512_vnni"),
    "-mavx512bf16": ("avx", "avx2", "fma", "avx512f", "avx512_bf16"),
    "-mavx512fp16": ("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_fp16"),
}
"""Flag → the CPU features, by the raw names that a target has, that the code may then use."""

HARMLESS = (
    *("-O1", "-O2", "-O3", "-ffast-math", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math"),
    *("-fno-signed-zeros", "-freciprocal-math", "-ffinite-math-only", "-ffp-contract=fast"),
    *("-ffp-contract=off", "-funroll-loops", "-fno-unroll-loops", "-ftree-vectorize", "-fno-tree-vectorize"),
    *("-fstrict-aliasing", "-fno-strict-aliasing", "-fwrapv", "-fomit-frame-pointer"),
    *("-mprefer-vector-width=128", "-mprefer-vector-width=256", "-mprefer-vector-width=512"),
    *("-mtune=generic", "-mtune=haswell", "-mtune=skylake-avx512", "-mtune=znver3", "-mtune=znver4"),
    *("-Wall", "-Wextra"),
)
STANDARDS = {
    "c": ("-std=c11", "-std=c17", "-std=gnu11", "-std=gnu17"),
    "c++": ("-std=c++14", "-std=c++17", "-std=c++20", "-std=gnu++17", "-std=gnu++20"),
}
OF_DEVICE_CODE = (
    *("--use_fast_math", "--fmad=false", "--extra-device-vectorization"),
    *("--maxrregcount=32", "--maxrregcount=64", "--maxrregcount=128"),
)
"""What device code may ask of NVRTC."""
OF_PROCESSORS = (*HARMLESS, *FEATURES, *STANDARDS["c"], *STANDARDS["c++"])
ALLOWED = {"c": OF_PROCESSORS, "c++": OF_PROCESSORS, "cuda": OF_DEVICE_CODE}
LANGUAGES = tuple(ALLOWED)
MOST = 24


class InvalidFlags(CallerError):
    """A flag that is not allowed, or a language that there is not."""

    def __init__(self, message: str, where: str = "flags") -> None:
        super().__init__(message)
        self.where = where


def check_flags(flags: Sequence[str], language: str) -> tuple[str, ...]:
    """The flags, each once, in the order given; raises :class:`InvalidFlags`."""
    if language not in LANGUAGES:
        raise InvalidFlags(f"The language is one of {', '.join(LANGUAGES)}.", "language")
    if isinstance(flags, str) or not isinstance(flags, Sequence):
        raise InvalidFlags("The flags are a list of texts.")
    if len(flags) > MOST:
        raise InvalidFlags(f"A kernel has at most {MOST} flags.")
    for flag in flags:
        if not isinstance(flag, str) or flag not in ALLOWED[language]:
            allowed = ", ".join(ALLOWED[language])
            raise InvalidFlags(f"The flag {str(flag)[:60]!r} is not allowed; allowed are {allowed}.")
        if flag.startswith("-std=") and flag not in STANDARDS[language]:
            raise InvalidFlags(f"{flag} is not for {language}: take one of {', '.join(STANDARDS[language])}.")
    return tuple(dict.fromkeys(flags))


def features_of(flags: Sequence[str]) -> tuple[str, ...]:
    """The CPU features that code compiled with these flags may use, sorted."""
    return tuple(sorted({feature for flag in flags for feature in FEATURES.get(flag, ())}))
