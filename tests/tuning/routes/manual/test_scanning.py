"""What a preprocessor reads of a source, told from comments and strings."""

from __future__ import annotations

import contextlib
import time

import pytest

from tuning.routes.base import RouteError
from tuning.routes.manual.nvrtc import _refuse_other_files
from tuning.routes.manual.scanning import without_comments

HEADERS = {"opatlas_operator.h": ""}

HIDDEN = {
    "in a string": 'const char* a = "/*";\n#include "/etc/passwd"\nconst char* b = "*/";',
    "in a character": "int a = '/*';\n#include \"/etc/passwd\"\n// */",
    "behind a digit separator": 'int a = 1\'0; f("\'/*");\n#include "/etc/passwd"\n// */',
    "behind an escaped quote": 'const char* a = "\\"/*";\n#include "/etc/passwd"\n// */',
    "behind a comment's star": '/**/\n#include "/etc/passwd"\n/**/',
    "with comments between": '#/* a */include/* b */"/etc/passwd"',
    "over two lines": '#inc\\\nlude "/etc/passwd"',
    "by a digraph": '%:include "/etc/passwd"',
    "by another word": '#include_next "/etc/passwd"\n',
    "by a macro": '#define FILE "/etc/passwd"\n#include FILE',
    "as a question": '#if __has_include("/etc/passwd")\n#endif',
    "below a comment that ends in blanks": '// a \\ \n#include "/etc/passwd"',
    "below an empty line": '// a \\\n\n#include "/etc/passwd"',
    "behind a carriage return": '// a\r#include "/etc/passwd"',
    "by a trigraph": '??=include "/etc/passwd"',
    "behind a trigraph": 'const char* a = "??/"/*";\n#include "/etc/passwd"\n// */',
    "in a raw string": 'auto a = R"(" /* )";\n#include "/etc/passwd"\n// */',
    "behind a lone quote": '#error it\'s /*\n"*/"/*"\n#include "/etc/passwd"\n// */',
    "behind a digit of another script": "#define J \u0661'a/*'\n#include \"/etc/passwd\"\n// */",
    "behind a dollar": '#define J 1\'$/*\'\n"*/ // " /*\n#include "/etc/passwd"\n// */',
    "behind a dollar in a name": "#define J $'/*'\n#include \"/etc/passwd\"\n// */",
    "in an open comment": '/* a\n#include "/etc/passwd"',
}


@pytest.mark.parametrize("how", HIDDEN)
def test_no_other_file_is_included(how: str) -> None:
    with pytest.raises(RouteError):
        _refuse_other_files(HIDDEN[how], HEADERS)


def test_an_honest_source_is_taken() -> None:
    _refuse_other_files(
        '#include "opatlas_operator.h"  // "of ours\n# include <cuda_fp16.h> /* it\'s NVIDIA\'s */\n'
        "/* #include <vector> */ // #include <map>\n"
        'int f() { return 1\'000 + \'"\' + sizeof("#include <x> \\"/*") + LR; }\r\n'
        "#define LONG a \\\n b\n",
        HEADERS,
    )
    assert without_comments("a/*\n*/b//c\nd") == "a b \nd"


@pytest.mark.parametrize(
    "piece", ["/*", "/", "*", '"', "'", '\\"', "#", "# ", "\n", " ", "1'", "R", "\\\n", "a*/"]
)
def test_it_takes_no_longer_than_it_is_long(piece: str) -> None:
    """128 KiB that would take the square of it took minutes."""
    began = time.thread_time()
    with contextlib.suppress(RouteError):
        without_comments(piece * ((128 << 10) // len(piece)))
    assert time.thread_time() - began < 5
