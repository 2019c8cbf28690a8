/* The bend of a feed-forward network with its bias and dropout, in one pass over each row. nn/bend.py says when. */

#include "drop.h"
#include <stdlib.h>

enum { RELU, GELU, GELU_TANH, SILU, SQUARED_RELU }; /* as nn/bend.py numbers them */

typedef struct { float value, slope; } Bent;

static inline float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

static inline __attribute__((always_inline)) Bent bend_one(int kind, float x)
{
    switch (kind) {
    case RELU: return (Bent){x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f}; /* NaN stays NaN */
    case SQUARED_RELU: x = x < 0.0f ? 0.0f : x; return (Bent){x * x, 2.0f * x};
    case SILU: {
        float s = logistic(x);
        return (Bent){x * s, s + x * s * (1.0f - s)};
    }
    case GELU_TANH: { /* ½ (1 + tanh u) = logistic(2u), u = √(2/π) (x + 0.044715 x³) */
        float s = logistic(x * (1.59576912f + 0.0713548163f * x * x));
        return (Bent){x * s, s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x)};
    }
    default: { /* x Φ(x); erf by Abramowitz & Stegun 7.1.26, right to 2 in 10^7 */
        float z = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.231641888f * z), e = exponential(-0.5f * x * x);
        float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
        float tail = 0.5f * p * e, share = x < 0.0f ? tail : 1.0f - tail;
        return (Bent){x * share, share + 0.398942280f * x * e};
    }
    }
}

static inline __attribute__((always_inline)) void bend_row(int kind, int width, const float *bias, const float *x, float *y)
{
    for (int i = 0; i < width; i++) y[i] = bend_one(kind, x[i] + bias[i]).value;
}

static inline __attribute__((always_inline)) void bend_row_back(
    int kind, int width, const float *bias, const float *x, float *y, float *grad)
{
    for (int i = 0; i < width; i++) {
        Bent bent = bend_one(kind, x[i] + bias[i]);
        y[i] = bent.value;
        grad[i] *= bent.slope;
    }
}

#define BY_KIND(F, ...) switch (kind) { \
    case RELU: F(RELU, __VA_ARGS__); break; case SILU: F(SILU, __VA_ARGS__); break; \
    case GELU: F(GELU, __VA_ARGS__); break; case GELU_TANH: F(GELU_TANH, __VA_ARGS__); break; \
    default: F(SQUARED_RELU, __VA_ARGS__); }

/* y = dropout(f(x + bias)) */
void bend(int kind, int64_t rows, int width, const float *bias, float rate, uint64_t seed, const float *x, float *y)
{
    #pragma omp parallel for if (rows * width > WORTH_THREADS / 16)
    for (int64_t row = 0; row < rows; row++) {
        float *to = y + row * width;
        BY_KIND(bend_row, width, bias, x + row * width, to)
        if (rate > 0.0f) drop(rate, seed, row, width, to, to);
    }
}

/* The gradient by y becomes that by x; y is found again; bias_grad: the sum over rows. */
void bend_back(int kind, int64_t rows, int width, const float *bias, float rate, uint64_t seed, const float *x, float *y,
    float *grad, float *bias_grad)
{
    for (int i = 0; i < width; i++) bias_grad[i] = 0.0f;
    #pragma omp parallel if (rows * width > WORTH_THREADS / 16)
    {
        int threads = omp_get_num_threads(), own = omp_get_thread_num();
        float *sums = calloc(width, sizeof(float));
        for (int64_t row = rows * own / threads; row < rows * (own + 1) / threads; row++) {
            float *to = y + row * width, *change = grad + row * width;
            if (rate > 0.0f) drop(rate, seed, row, width, change, change);
            BY_KIND(bend_row_back, width, bias, x + row * width, to, change)
            if (rate > 0.0f) drop(rate, seed, row, width, to, to);
            for (int i = 0; i < width; i++) sums[i] += change[i];
        }
        #pragma omp for ordered schedule(static, 1)
        for (int thread = 0; thread < threads; thread++) { /* in the same order every time */
            #pragma omp ordered
            for (int i = 0; i < width; i++) bias_grad[i] += sums[i];
        }
        free(sums);
    }
}
