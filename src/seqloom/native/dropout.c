/* Dropout of all numbers of a tensor, and of what is added to another one. */

#include "bfloat16.h"

API void KERNEL(drop)(int threads, int64_t count, float rate, uint64_t seed, const float *x, float *y)
{
    #pragma omp parallel for num_threads(threads) if (threads > 1 && count > WORTH_THREADS / 16)
    for (int64_t start = 0; start < count; start += DROPPED)
        drop(rate, seed, start / DROPPED, least((size_t)(count - start), DROPPED), x + start, y + start);
}

/* z = x + dropout(y), where y is bfloat16. */
API void KERNEL(add_dropped)(int threads, int64_t count, float rate, uint64_t seed, const float *x, const uint16_t *y,
    float *z)
{
    #pragma omp parallel for num_threads(threads) if (threads > 1 && count > WORTH_THREADS / 16)
    for (int64_t start = 0; start < count; start += DROPPED) {
        size_t size = least((size_t)(count - start), DROPPED);
        float room[DROPPED];
        widen_row(size, y + start, room);
        if (rate > 0.0f) drop(rate, seed, start / DROPPED, size, room, room);
        for (size_t i = 0; i < size; i++) z[start + (int64_t)i] = x[start + (int64_t)i] + room[i];
    }
}

/* y = dropout(x), rounded to bfloat16: the gradient by what was added. */
API void KERNEL(drop_short)(int threads, int64_t count, float rate, uint64_t seed, const float *x, uint16_t *y)
{
    #pragma omp parallel for num_threads(threads) if (threads > 1 && count > WORTH_THREADS / 16)
    for (int64_t start = 0; start < count; start += DROPPED) {
        size_t size = least((size_t)(count - start), DROPPED);
        float room[DROPPED];
        if (rate > 0.0f) drop(rate, seed, start / DROPPED, size, x + start, room);
        shorten_row(size, rate > 0.0f ? room : x + start, y + start);
    }
}
