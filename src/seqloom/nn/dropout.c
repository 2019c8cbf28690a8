/* Dropout of all numbers of a tensor. nn/dropout.py says when this is used. */

#include "drop.h"

#define ROW 4096 /* numbers */

void drop_all(int64_t count, float rate, uint64_t seed, const float *x, float *y)
{
    #pragma omp parallel for if (count > WORTH_THREADS / 16)
    for (int64_t start = 0; start < count; start += ROW)
        drop(rate, seed, start / ROW, count - start < ROW ? count - start : ROW, x + start, y + start);
}
