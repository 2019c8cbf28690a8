/* The activation of a feed-forward network with its bias and dropout, in one pass over each row. */

#include "kernels.h"

INLINE void activate_row(int kind, size_t width, const float *bias, const float *x, float *y)
{
    for (size_t i = 0; i < width; i++) y[i] = activate_one(kind, x[i] + bias[i]).value;
}

INLINE void differentiate_row(int kind, size_t width, const float *bias, const float *x, float *y, float *grad)
{
    for (size_t i = 0; i < width; i++) {
        Activated found = activate_one(kind, x[i] + bias[i]);
        y[i] = found.value;
        grad[i] *= found.slope;
    }
}

/* y = dropout(f(x + bias)) */
API void KERNEL(activate)(int threads, int kind, int64_t rows, int64_t width, const float *bias, float rate,
    uint64_t seed, const float *x, float *y)
{
    #pragma omp parallel for num_threads(threads) if (threads > 1 && rows * width > WORTH_THREADS / 16)
    for (int64_t row = 0; row < rows; row++) {
        float *to = y + row * width;
        BY_ACTIVATION(kind, activate_row, (size_t)width, bias, x + row * width, to)
        if (rate > 0.0f) drop(rate, seed, row, (size_t)width, to, to);
    }
}

/* The gradient by y becomes that by x; y is found again; bias_grad: the sum over rows, made of PARTS sums. */
API int KERNEL(differentiate_activation)(int threads, int kind, int64_t rows, int64_t width, const float *bias,
    float rate, uint64_t seed, const float *x, float *y, float *grad, float *bias_grad)
{
    int64_t size = rows / PARTS + 1, parts = rows ? (rows - 1) / size + 1 : 0;
    if (!width) return OK;
    float *sums = reserve((size_t)parts * (size_t)width, sizeof(float));
    if (!sums) return NO_MEMORY;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) \
        if (threads > 1 && rows * width > WORTH_THREADS / 16)
    for (int64_t part = 0; part < parts; part++) {
        float *own = sums + part * width;
        int64_t end = rows < (part + 1) * size ? rows : (part + 1) * size;
        memset(own, 0, (size_t)width * sizeof(float));
        for (int64_t row = part * size; row < end; row++) {
            float *to = y + row * width, *change = grad + row * width;
            if (rate > 0.0f) drop(rate, seed, row, (size_t)width, change, change);
            BY_ACTIVATION(kind, differentiate_row, (size_t)width, bias, x + row * width, to, change)
            if (rate > 0.0f) drop(rate, seed, row, (size_t)width, to, to);
            for (int64_t i = 0; i < width; i++) own[i] += change[i];
        }
    }
    memset(bias_grad, 0, (size_t)width * sizeof(float));
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < width; i++) bias_grad[i] += sums[part * width + i];
    free(sums);
    return OK;
}
