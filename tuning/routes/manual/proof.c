/* Relu in plain C: what a worker builds and runs to see whether submitted kernels can be. */
#include "opatlas_operator.h"
int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *threads, void *state)
{
    const IN0_TYPE *x = t[0].data;
    OUT0_TYPE *y = t[1].data;
    (void)n; (void)threads; (void)state;
    for (int64_t i = 0; i < IN0_SIZE; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
    return 0;
}
