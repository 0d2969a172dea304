"""C kernels of one operator (Relu), honest and hostile, compiled for real."""

from __future__ import annotations

import hashlib
from pathlib import Path

from opatlas.identity import Operator, Setting, parse_operator
from opatlas.load import Manifest
from tests.opatlas.load.kernels import compiled, write_library
from tuning.routes.base import BuiltArtifact

PREAMBLE = r"""
#define _GNU_SOURCE
#pragma GCC optimize("O3")
#include "opatlas_abi.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>
#include <fcntl.h>
#include <signal.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
static int64_t count(const opatlas_tensor* t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}
static void relu(const opatlas_tensor* t) {
  const float* x = t[0].data; float* y = t[1].data; int64_t n = count(t);
  for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
static int calls = 0;
"""

RUN = "int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) {"

BODIES = {
    "honest": "relu(t); return 0; }",
    "segfault": "*(volatile int*)0 = 1; return 0; }",
    "abort": "abort(); }",
    "exit": "_exit(0); }",
    "error": "return 7; }",
    "hang": "for (;;) { } }",
    "sleep": "for (;;) pause(); }",
    "memory": "for (;;) { char* p2 = malloc(64 << 20); if (p2) memset(p2, 1, 64 << 20); else pause(); } }",
    "disk": """static char block[1 << 20]; char name[64];
        for (int i = 0; ; i++) { sprintf(name, "file%d", i); int f = open(name, O_CREAT | O_WRONLY, 0600);
          if (f < 0) return 5; for (int j = 0; j < 8; j++) if (write(f, block, sizeof block) < 0) pause();
          close(f); } }""",
    "large_file": """static char block[1 << 20]; int f = open("file", O_CREAT | O_WRONLY, 0600);
        if (f < 0) return 5; for (;;) if (write(f, block, sizeof block) < 0) pause(); }""",
    "forks": "for (;;) { if (fork() < 0) pause(); } }",
    "prints": 'for (;;) printf("all work and no play makes a long log\\n"); }',
    "kill_zygote": "kill(getppid(), SIGKILL); usleep(200000); relu(t); return 0; }",
    "kill_everyone": "kill(-1, SIGKILL); usleep(200000); relu(t); return 0; }",
    "talks": """for (int f = 3; f < 64; f++) { char junk[64]; memset(junk, 'x', sizeof junk);
        send(f, junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL); } relu(t); return 0; }""",
    "wrong": "relu(t); ((float*)t[1].data)[5] += 0.25f; return 0; }",
    "nan": "relu(t); ((float*)t[1].data)[5] = NAN; return 0; }",
    "nothing": "return 0; }",
    "writes_input": "relu(t); ((float*)t[0].data)[3] = 1.0f; return 0; }",
    "stale": "if (calls++ < 6) relu(t); return 0; }",
    "remembers": """static const void* seen[4]; static float* saved[4]; int64_t n2 = count(t);
        for (int i = 0; i < 4; i++) if (seen[i] == t[0].data) {
          memcpy(t[1].data, saved[i], n2 * 4); return 0; }
        relu(t); if (calls++ < 4) return 0;
        for (int i = 0; i < 4; i++) if (!seen[i]) { seen[i] = t[0].data; saved[i] = malloc(n2 * 4);
          memcpy(saved[i], t[1].data, n2 * 4); return 0; }
        return 0; }""",
    "skips_known": """volatile double waste = 0;
        if (((float*)t[1].data)[0] == ((float*)t[1].data)[0]) return 0;
        for (int i = 0; i < 400000; i++) waste += i; relu(t); return 0; }""",
    "leaves_process": "relu(t); if (calls++ == 0 && fork() == 0) for (;;) pause(); return 0; }",
    "very_slow": "relu(t); usleep(20000); return 0; }",
}

BACKGROUND = (
    "static void* burn(void* a) { (void)a; for (;;) { } return 0; }\n"
    + RUN
    + "if (calls++ == 0) { pthread_t th; pthread_create(&th, 0, burn, 0); } relu(t); return 0; }"
)

REPEATED = (
    "static void again(const opatlas_tensor* t) { for (volatile int r = 0; r < %d; r++) relu(t); }\n"
    + (RUN + "again(t); return 0; }")
)


def relu_operator(shape: tuple[int, ...] = (128, 128)) -> Operator:
    return parse_operator({"op": "Relu", "inputs": [{"shape": list(shape), "dtype": "float32"}]})


def c_artifact(
    folder: Path, name: str, operator: Operator, setting: Setting, source: str | None = None
) -> BuiltArtifact:
    """Compile the kernel ``name`` (or ``source``) and describe it."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    text = PREAMBLE + (source or RUN + BODIES[name])
    (folder / "kernel.c").write_text(text)
    library = folder / "kernel.so"
    write_library(library, compiled(text))
    manifest = Manifest(
        kind="c-abi",
        route="cpp",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={library.name: hashlib.sha256(library.read_bytes()).hexdigest()},
    )
    return BuiltArtifact(manifest, folder)
