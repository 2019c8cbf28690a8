/* Dropout: which numbers fall out is a function of a seed and their place, so that the gradient's do too. */

#include "native.h"
#include <stdint.h>

static inline uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* A row of x loses each of its numbers with probability `rate`; the others grow, so that the mean stays. y may be x. */
static void drop(float rate, uint64_t seed, int64_t row, int count, const float *x, float *y)
{
    uint32_t own = mix((uint32_t)(seed >> 32) + mix((uint32_t)row + mix((uint32_t)seed + (uint32_t)(row >> 32))));
    int32_t least = (int32_t)(rate * 2147483648.0f);
    float factor = 1.0f / (1.0f - rate);
    for (int t = 0; t < count; t++)
        y[t] = x[t] * ((int32_t)(mix(own + 0x9e3779b9u * (uint32_t)t) >> 1) < least ? 0.0f : factor);
}
