/* LayerNorm and RMSNorm for training in bfloat16: rows of float32 come in, and what is multiplied next goes out.
 *
 *   y = x̂ · g + b     x̂ = (x − μ)/σ     ∂x = (∂x̂ − mean(∂x̂) − x̂ · mean(x̂ ∂x̂))/σ, ∂x̂ = g · ∂y     RMSNorm has no μ and b
 */

#include "bfloat16.h"

typedef struct { float mean, scale; } Moments;

static Moments measure(size_t dim, const float *x, const Norm *norm)
{
    float mean = norm->shift ? sum(x, dim) / (float)dim : 0.0f;
    return (Moments){mean, 1.0f / sqrtf(sum_squares(x, dim, mean) / (float)dim + norm->epsilon)};
}

/* A row's part of the gradients by gain and shift; the gradient by y becomes that by x̂, which is found again. */
static void spread_row(size_t dim, Moments m, const float *restrict gain, const float *restrict x, float *restrict grad,
    float *restrict even, float *restrict gain_sum, float *restrict shift_sum)
{
    for (size_t i = 0; i < dim; i++) {
        even[i] = (x[i] - m.mean) * m.scale;
        gain_sum[i] += grad[i] * even[i];
        shift_sum[i] += grad[i];
        grad[i] *= gain[i];
    }
}

/* y, in bfloat16: the normalised rows of x */
API int KERNEL(normalise_rows)(int threads, int64_t rows, int64_t dim, const Norm *norm, const float *x, uint16_t *y)
{
    float *room = reserve((size_t)threads * (size_t)dim, sizeof(float));
    if (!room) return NO_MEMORY;
    #pragma omp parallel for num_threads(threads) if (threads > 1 && rows * dim > WORTH_THREADS / 16)
    for (int64_t row = 0; row < rows; row++) {
        float *own = room + omp_get_thread_num() * dim;
        normalise_row((size_t)dim, x + row * dim, norm, own);
        shorten_row((size_t)dim, own, y + row * dim);
    }
    free(room);
    return OK;
}

/* The gradients by x, gain and shift from that by y; those by gain and shift are made of PARTS sums over rows. */
API int KERNEL(differentiate_norm)(int threads, int64_t rows, int64_t dim, const Norm *norm, const float *x,
    const uint16_t *grad, float *x_grad, float *gain_grad, float *shift_grad)
{
    int64_t size = rows / PARTS + 1, parts = rows ? (rows - 1) / size + 1 : 0;
    float *sums = reserve(2 * ((size_t)parts + (size_t)threads) * (size_t)dim, sizeof(float));
    if (!sums) return NO_MEMORY;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && rows * dim > WORTH_THREADS / 16)
    for (int64_t part = 0; part < parts; part++) {
        float *gain_sum = sums + 2 * part * dim, *shift_sum = gain_sum + dim;
        float *change = sums + 2 * (parts + omp_get_thread_num()) * dim, *even = change + dim;
        int64_t end = rows < (part + 1) * size ? rows : (part + 1) * size;
        memset(gain_sum, 0, 2 * (size_t)dim * sizeof(float));
        for (int64_t row = part * size; row < end; row++) {
            const float *from = x + row * dim;
            float *to = x_grad + row * dim;
            Moments m = measure((size_t)dim, from, norm);
            widen_row((size_t)dim, grad + row * dim, change);
            spread_row((size_t)dim, m, norm->gain, from, change, even, gain_sum, shift_sum);
            float along = dot(even, change, (size_t)dim) / (float)dim;
            float mean = norm->shift ? sum(change, (size_t)dim) / (float)dim : 0.0f;
            for (int64_t i = 0; i < dim; i++) to[i] = m.scale * (change[i] - mean - even[i] * along);
        }
    }
    memset(gain_grad, 0, (size_t)dim * sizeof(float));
    if (shift_grad) memset(shift_grad, 0, (size_t)dim * sizeof(float));
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < dim; i++) {
            gain_grad[i] += sums[2 * part * dim + i];
            if (shift_grad) shift_grad[i] += sums[(2 * part + 1) * dim + i];
        }
    free(sums);
    return OK;
}
