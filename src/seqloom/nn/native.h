/* What the C files beside this one share. native.py compiles them. */

#include <math.h>
#include <stddef.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif

#define WORTH_THREADS 1000000 /* multiplications: less is done sooner than a second thread wakes */

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias)); /* numbers that are computed at once */

/* e^x as 2^n · 2^f with |f| ≤ 1/2 and Taylor's polynomial for 2^f: right to 2 in 10^7, and fit for vector registers. */
static inline float exponential(float x)
{
    x = x > -87.0f ? x : -87.0f; /* not fmaxf, which no register has */
    x = x < 88.0f ? x : 88.0f;
    float t = x * 1.44269504f, n = rintf(t), f = (t - n) * 0.693147181f;
    float p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
    union { int i; float f; } power = {((int)n + 127) << 23};
    return p * power.f;
}

/* The largest of some numbers; NaN is none. Lane by lane, as registers compare. */
static inline float find_largest(const float *x, int count)
{
    float most = -INFINITY, lanes[32];
    int i = 0;
    if (count >= 8) {
        for (int j = 0; j < 32; j++) lanes[j] = -INFINITY;
        for (; i + 32 <= count; i += 32)
            for (int j = 0; j < 32; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        for (; i + 8 <= count; i += 8)
            for (int j = 0; j < 8; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        for (int j = 0; j < 16; j++) lanes[j] = lanes[j + 16] > lanes[j] ? lanes[j + 16] : lanes[j];
        for (int j = 0; j < 8; j++) lanes[j] = lanes[j + 8] > lanes[j] ? lanes[j + 8] : lanes[j];
        for (int j = 0; j < 8; j++) most = lanes[j] > most ? lanes[j] : most;
    }
    for (; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}
