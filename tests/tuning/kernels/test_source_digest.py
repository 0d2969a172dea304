"""Which edits are trivial: they change no digest of tokens; and which are not."""

from __future__ import annotations

import pytest

from tuning.kernels.shipped import examples
from tuning.kernels.source_digest import source_digest, tokens_digest

SOURCE = """\
#include <math.h>
#include "opatlas_operator.h"
#define STEP 8
static float peak(const float *x, int n) { float most = x[0]; for (int i = 1; i < n; i++) most = fmaxf(most, x[i]); return most; }
int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *threads, void *state) {
    const float *x = t[0].data;
    for (int64_t row = 0; row < IN0_SIZE; row += STEP) ((float *)t[1].data)[row] = expf(x[row] - peak(x, STEP));
    return 0;
}
"""  # noqa: E501


@pytest.mark.parametrize(
    "edited",
    [
        SOURCE + "\n\n// a kernel of my own\n",
        "/* mine */\n" + SOURCE.replace("    ", "\t").replace(" = ", "="),
        SOURCE.replace("peak", "largest_of_all").replace("most", "q"),
        SOURCE.replace("STEP", "WIDTH"),
        SOURCE.replace("return 0;", "ret\\\nurn 0;"),
        SOURCE.replace("\n", "\r\n"),
        SOURCE.replace("STEP 8\n", "STEP 8 \n"),
        SOURCE.replace("#include <math.h>", "#  include   <math.h> // maths"),
        SOURCE.replace("#define STEP 8", "# define  STEP  8"),
    ],
)
def test_a_trivial_edit_changes_the_bytes_only(edited: str) -> None:
    assert tokens_digest(edited) == tokens_digest(SOURCE)
    assert source_digest(edited) != source_digest(SOURCE)


@pytest.mark.parametrize(
    "edited",
    [
        SOURCE.replace("expf", "logf"),
        SOURCE.replace("fmaxf", "fminf"),
        SOURCE.replace("STEP 8", "STEP 16"),
        SOURCE.replace("IN0_SIZE", "OUT0_SIZE"),
        SOURCE.replace("x[row] -", "x[row] +"),
        SOURCE.replace("<math.h>", "<tgmath.h>"),
        SOURCE.replace("int i = 1", "int i = 0"),
        SOURCE.replace("float most", "double most"),
        SOURCE.replace("#define STEP 8\n", "#define STEP 8 \\\n + 1\n"),
        SOURCE.replace("return most;", 'return most + sizeof "// not a comment";'),
    ],
)
def test_what_computes_otherwise_has_another_digest(edited: str) -> None:
    assert edited != SOURCE and tokens_digest(edited) != tokens_digest(SOURCE)


def test_no_two_shipped_sources_are_taken_for_each_other() -> None:
    sources = {one.source for one in examples()}
    assert len({tokens_digest(source) for source in sources}) == len(sources) > 2
