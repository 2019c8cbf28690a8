/* The activation of a feed-forward network with its bias and dropout, in one pass over each row. */

#include "bfloat16.h"

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

/* y = dropout(f(x + bias)); x and y are of `precision`. */
API int KERNEL(activate)(int threads, int precision, int kind, int64_t rows, int64_t width, const float *bias,
    float rate, uint64_t seed, const void *x, void *y)
{
    float *room = reserve(2 * (size_t)threads * (size_t)width, sizeof(float));
    if (!room) return NO_MEMORY;
    #pragma omp parallel for num_threads(threads) if (threads > 1 && rows * width > WORTH_THREADS / 16)
    for (int64_t row = 0; row < rows; row++) {
        float *own = room + 2 * omp_get_thread_num() * width;
        const float *from = read_row(precision, find(precision, x, row * width), (size_t)width, own);
        void *at = find(precision, y, row * width);
        float *to = open_row(precision, at, own + width);
        BY_ACTIVATION(kind, activate_row, (size_t)width, bias, from, to)
        if (rate > 0.0f) drop(rate, seed, row, (size_t)width, to, to);
        close_row(precision, at, (size_t)width, to);
    }
    free(room);
    return OK;
}

/* The gradient by y becomes that by x; y is found again; bias_grad: the sum over rows, made of PARTS sums. */
API int KERNEL(differentiate_activation)(int threads, int precision, int kind, int64_t rows, int64_t width,
    const float *bias, float rate, uint64_t seed, const void *x, void *y, void *grad, float *bias_grad)
{
    int64_t size = rows / PARTS + 1, parts = rows ? (rows - 1) / size + 1 : 0;
    if (!width) return OK;
    float *sums = reserve(((size_t)parts + 3 * (size_t)threads) * (size_t)width, sizeof(float));
    if (!sums) return NO_MEMORY;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) \
        if (threads > 1 && rows * width > WORTH_THREADS / 16)
    for (int64_t part = 0; part < parts; part++) {
        float *own = sums + part * width, *room = sums + (parts + 3 * omp_get_thread_num()) * width;
        int64_t end = rows < (part + 1) * size ? rows : (part + 1) * size;
        memset(own, 0, (size_t)width * sizeof(float));
        for (int64_t row = part * size; row < end; row++) {
            void *y_at = find(precision, y, row * width), *grad_at = find(precision, grad, row * width);
            const float *from = read_row(precision, find(precision, x, row * width), (size_t)width, room);
            float *to = open_row(precision, y_at, room + width);
            float *change = (float *)read_row(precision, grad_at, (size_t)width, room + 2 * width);
            if (rate > 0.0f) drop(rate, seed, row, (size_t)width, change, change);
            BY_ACTIVATION(kind, differentiate_row, (size_t)width, bias, from, to, change)
            if (rate > 0.0f) drop(rate, seed, row, (size_t)width, to, to);
            for (int64_t i = 0; i < width; i++) own[i] += change[i];
            close_row(precision, y_at, (size_t)width, to);
            close_row(precision, grad_at, (size_t)width, change);
        }
    }
    memset(bias_grad, 0, (size_t)width * sizeof(float));
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < width; i++) bias_grad[i] += sums[part * width + i];
    free(sums);
    return OK;
}
