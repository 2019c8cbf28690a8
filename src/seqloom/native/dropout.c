/* Dropout of all numbers of a tensor. */

#include "kernels.h"

API void KERNEL(drop)(int threads, int64_t count, float rate, uint64_t seed, const float *x, float *y)
{
    #pragma omp parallel for num_threads(threads) if (threads > 1 && count > WORTH_THREADS / 16)
    for (int64_t start = 0; start < count; start += DROPPED)
        drop(rate, seed, start / DROPPED, least((size_t)(count - start), DROPPED), x + start, y + start);
}
