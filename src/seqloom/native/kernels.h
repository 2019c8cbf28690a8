/* What the kernels share: every constant, every structure that Python fills in, and the mathematics that two files use.
 *
 * Each .c file but level.c is compiled once for every level of instructions that the package is built for; LEVEL names
 * it, and KERNEL(name) is the name of a function at that level.
 *
 * A sum is always made in the same order: a number's lane is its place modulo SPREAD, and lanes are added as a fixed
 * tree. So a row does not depend on its neighbours, on padding, on the number of threads or on the level.
 */

#ifndef SEQLOOM_KERNELS_H
#define SEQLOOM_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void) { return 0; }
#endif

#define ABI 4 /* raise it whenever a function changes what it takes or means */

#define API __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define JOIN(a, b) a##_##b
#define JOIN_EXPANDED(a, b) JOIN(a, b)
#define KERNEL(name) JOIN_EXPANDED(seqloom_##name, LEVEL)

#define SPREAD 32 /* lanes of a sum: four registers of eight, so that additions need not wait for each other */
#define WIDE 16   /* outputs computed side by side: with six rows, as many sums as the registers of AVX2 hold */
#define ROWS 6    /* of a product, whose sums stay in registers */
#define DEEP 256  /* inputs: the weights of WIDE outputs for them fill half of the nearest cache */
#define CHUNK 60  /* rows: what a block computes of them stays in the cache of a core */
#define MANY (8 * CHUNK) /* rows: each thread takes a chunk at a time; of fewer, the threads share the outputs */
#define BAND 24   /* queries whose scores are worked on at a time, so that they stay in the nearest cache */
#define BLOCK 64  /* scores whose largest is remembered for when the largest of a row are looked for */
#define DROPPED 4096 /* numbers that dropout of a whole tensor treats as one row */
#define PARTS 64  /* parts of a batch whose sums over rows are made apart, and then added in order */
#define WORTH_THREADS 1000000 /* multiplications: less is done sooner than a second thread wakes */
#define WORTH_READING 60000 /* weights: two threads read more of them at a time from the cache that they share */

enum { OK, NO_MEMORY, OUT_OF_ROOM, NO_SUCH_SLOT, NO_SUCH_TOKEN }; /* what a kernel returns */
enum { RELU, GELU, GELU_TANH, SILU, TANH, SQUARED_RELU }; /* activations */
enum { EVERYTHING, PAST, FUTURE }; /* what a query sees, besides itself */
enum { FLOAT32, BFLOAT16, INT8 }; /* the precisions of the weights of a linear layer */

typedef struct {
    const void *weight; /* panels: for each WIDE outputs, for each group of inputs, their weights: read once, in this order */
    const float *bias;  /* weight and bias are filled up with zeros to a multiple of WIDE outputs */
    const float *scales, *totals; /* int8: what an output's integers are multiplied by, and their sum; else NULL */
    int32_t inputs, outputs, precision;
} Linear;

typedef struct {
    const float *gain, *shift; /* shift is NULL for RMSNorm */
    float epsilon;
} Norm;

typedef struct {
    int32_t model_dim, heads, kv_heads, head_dim, hidden_dim, post_norm, gated, activation, normalised;
    Norm attention_norm, cross_norm, feedforward_norm;
    Linear in, out, query, cross_out, expand, contract;
    const float *frequencies; /* of rotary positions, or NULL */
} Block;

typedef struct {
    int32_t batch, beams, tokens, room, source_length; /* tokens: new ones of each beam */
    float *cache;               /* (batch, 2 kv_heads, room, beams, head_dim): keys, then values */
    const int32_t *positions;   /* (batch): how many tokens each line has read before these */
    int32_t *slots;             /* (batch, beams, room): in which beam's slot a token stands; NULL for one beam */
    const float *keys, *values; /* (batch, heads, source_length, head_dim), or NULL without a source */
    const float *source_bias;   /* (batch, source_length): minus infinity for padding, or NULL */
    float *weights;             /* (batch, beams, tokens, source_length): the last block's, the mean of its heads; or NULL */
    const float *vectors;       /* of `predict`: (longest, vector_dim), added to the embeddings by position; or NULL */
    int32_t longest, vector_dim;
} Step;

typedef struct {
    const Block *const *blocks;
    const float *table;         /* (vocabulary, model_dim): the embeddings */
    Norm input_norm, final_norm; /* without a gain: none */
    Linear output;
    int32_t count, model_dim, vocabulary;
    float factor;               /* of the embeddings */
} Model;

typedef struct {
    int32_t sequences, heads, groups, dim, sees, normalised, longest_query, longest_key, precision;
    const int64_t *query_starts, *query_counts, *key_starts, *key_counts;
    const void *query, *key, *value;  /* rows of packed tokens; the heads of a row lie side by side */
    int64_t query_width, key_width;   /* numbers from one row to the next */
    const float *cosines, *sines;     /* of rotary positions: (longest, dim / 2), or NULL */
    float scale, rate;                /* of dropout */
    uint64_t seed;
} Attention;

typedef struct {
    int64_t rows;
    int32_t lines, hidden, gates, reverse; /* gates: four of an LSTM, three of a GRU */
    const int64_t *starts, *counts, *order; /* of lines: first row, tokens; order: longest first */
    const float *weight;  /* U: (gates · hidden, hidden) */
    const float *bias;    /* GRU: that of the state's share of n */
    const float *initial; /* (lines, 2, hidden): h and c; of a GRU (lines, 1, hidden); or NULL: zeros */
    float *values;        /* (rows, gates · hidden): the inputs' share of each gate, then the gates */
    float *kept, *out;    /* (rows, hidden): c, or the state's share of n; h */
} Recurrence;

typedef struct {
    const float *grad, *last_grad; /* by `out` and by the last states, which are as `initial`; or NULL: zeros */
    float *changes;      /* (rows, 4 · hidden): by the gates */
    float *before;       /* (rows, hidden): h before each token */
    float *initial_grad; /* or NULL */
} RecurrenceGrads;

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias)); /* numbers that are computed at once */

/* Eight numbers of two registers, by their places. */
#ifdef __clang__
#define PICK(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
typedef int32_t Places __attribute__((vector_size(32)));
#define PICK(A, B, ...) __builtin_shuffle(A, B, (Places){__VA_ARGS__})
#endif

static inline Eight load(const float *x) { return *(const Eight *)x; }
static inline void store(float *x, Eight value) { *(Eight *)x = value; }
static inline size_t round_up(size_t count) { return (count + 7) / 8 * 8; }
static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t most_of(size_t a, size_t b) { return a > b ? a : b; }

/* Memory for `count` things, or NULL. */
static inline void *reserve(size_t count, size_t size)
{
    if (count > SIZE_MAX / 4 / size) return NULL;
    return aligned_alloc(64, most_of((count * size + 63) / 64 * 64, 64));
}

/* ---- sums in a fixed order ---- */

static inline float add_lanes(const Eight *sums)
{
    Eight x = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

static inline float sum(const float *x, size_t count)
{
    Eight sums[4] = {{0}};
    size_t i = 0;
    for (; i + SPREAD <= count; i += SPREAD)
        for (int j = 0; j < 4; j++) sums[j] += load(x + i + 8 * j);
    if (i < count) {
        float rest[SPREAD] = {0};
        memcpy(rest, x + i, (count - i) * sizeof(float));
        for (int j = 0; j < 4; j++) sums[j] += load(rest + 8 * j);
    }
    return add_lanes(sums);
}

static inline float dot(const float *x, const float *y, size_t count)
{
    Eight sums[4] = {{0}};
    size_t i = 0;
    for (; i + SPREAD <= count; i += SPREAD)
        for (int j = 0; j < 4; j++) sums[j] += load(x + i + 8 * j) * load(y + i + 8 * j);
    if (i < count) {
        float first[SPREAD] = {0}, second[SPREAD] = {0};
        memcpy(first, x + i, (count - i) * sizeof(float));
        memcpy(second, y + i, (count - i) * sizeof(float));
        for (int j = 0; j < 4; j++) sums[j] += load(first + 8 * j) * load(second + 8 * j);
    }
    return add_lanes(sums);
}

/* Σ (x − mean)² */
static inline float sum_squares(const float *x, size_t count, float mean)
{
    Eight sums[4] = {{0}};
    size_t i = 0;
    for (; i + SPREAD <= count; i += SPREAD)
        for (int j = 0; j < 4; j++) {
            Eight difference = load(x + i + 8 * j) - mean;
            sums[j] += difference * difference;
        }
    if (i < count) {
        float rest[SPREAD] = {0};
        for (size_t j = 0; i + j < count; j++) rest[j] = x[i + j] - mean;
        for (int j = 0; j < 4; j++) sums[j] += load(rest + 8 * j) * load(rest + 8 * j);
    }
    return add_lanes(sums);
}

/* The largest of some numbers; NaN is none. */
static inline float find_largest(const float *x, size_t count)
{
    float most = -INFINITY, lanes[SPREAD];
    size_t i = 0;
    if (count >= 8) {
        for (int j = 0; j < SPREAD; j++) lanes[j] = -INFINITY;
        for (; i + SPREAD <= count; i += SPREAD)
            for (int j = 0; j < SPREAD; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        for (; i + 8 <= count; i += 8)
            for (int j = 0; j < 8; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        for (int j = 0; j < 16; j++) lanes[j] = lanes[j + 16] > lanes[j] ? lanes[j + 16] : lanes[j];
        for (int j = 0; j < 8; j++) lanes[j] = lanes[j + 8] > lanes[j] ? lanes[j + 8] : lanes[j];
        for (int j = 0; j < 8; j++) most = lanes[j] > most ? lanes[j] : most;
    }
    for (; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* ---- the exponential, and sums of it ---- */

/* e^x = 2^n e^r with n = round(x / ln 2) and Taylor's polynomial for e^r: right to 2 in 10^7. NaN stays NaN. At the
   lower bound 2^n has the bits of zero, at the upper those of infinity. `magic` has no room for fractions, so adding it
   rounds. */
INLINE float exponential(float x)
{
    const float magic = 12582912.0f; /* 1.5 · 2^23 */
    x = x < -88.0f ? -88.0f : x;
    x = x > 89.0f ? 89.0f : x;
    union { float f; uint32_t bits; } shifted = {x * 1.44269504f + magic}, power;
    float n = shifted.f - magic, r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f
        + r * 0.00138888889f)))));
    power.bits = (shifted.bits << 23) + (127u << 23);
    return p * power.f;
}

INLINE void add_exponentials(const float *restrict x, float shift, float *restrict terms, Eight *sums)
{
    for (int j = 0; j < SPREAD; j++) terms[j] = exponential(x[j] - shift);
    for (int j = 0; j < 4; j++) sums[j] += load(terms + 8 * j);
}

/* Σ exp(x − shift); y gets the terms, and may be x or NULL. */
static inline float sum_exponentials(const float *x, size_t count, float shift, float *y)
{
    Eight sums[4] = {{0}};
    float terms[SPREAD], rest[SPREAD];
    size_t i = 0;
    for (; i + SPREAD <= count; i += SPREAD) {
        add_exponentials(x + i, shift, terms, sums);
        if (y) memcpy(y + i, terms, sizeof terms);
    }
    if (i < count) {
        for (size_t j = 0; j < SPREAD; j++) rest[j] = i + j < count ? x[i + j] : -INFINITY; /* which adds nothing */
        add_exponentials(rest, shift, terms, sums);
        if (y) memcpy(y + i, terms, (count - i) * sizeof(float));
    }
    return add_lanes(sums);
}

/* ---- activations ---- */

typedef struct { float value, slope; } Activated;

INLINE float logistic(float x)
{
    return 1.0f / (1.0f + exponential(-x));
}

INLINE Activated activate_one(int kind, float x)
{
    switch (kind) {
    case RELU: return (Activated){x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f}; /* NaN stays NaN */
    case SQUARED_RELU: x = x < 0.0f ? 0.0f : x; return (Activated){x * x, 2.0f * x};
    case SILU: {
        float s = logistic(x);
        return (Activated){x * s, s + x * s * (1.0f - s)};
    }
    case TANH: {
        float y = 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
        return (Activated){y, 1.0f - y * y};
    }
    case GELU_TANH: { /* ½ (1 + tanh u) = logistic(2u), u = √(2/π) (x + 0.044715 x³) */
        float s = logistic(x * (1.59576912f + 0.0713548163f * x * x));
        return (Activated){x * s, s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x)};
    }
    default: { /* GELU: x Φ(x); erf by Abramowitz & Stegun 7.1.26, right to 2 in 10^7 */
        float z = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.231641888f * z), e = exponential(-0.5f * x * x);
        float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f
            + t * 1.061405429f))));
        float tail = 0.5f * p * e, share = x < 0.0f ? tail : 1.0f - tail;
        return (Activated){x * share, share + 0.398942280f * x * e};
    }
    }
}

/* A loop for each kind, so that the compiler makes each fit for registers. */
#define BY_ACTIVATION(kind, F, ...) switch (kind) { \
    case RELU: F(RELU, __VA_ARGS__); break; case SILU: F(SILU, __VA_ARGS__); break; \
    case GELU: F(GELU, __VA_ARGS__); break; case GELU_TANH: F(GELU_TANH, __VA_ARGS__); break; \
    case TANH: F(TANH, __VA_ARGS__); break; default: F(SQUARED_RELU, __VA_ARGS__); }

/* ---- norms ---- */

/* y may be x. */
static inline void normalise_row(size_t dim, const float *x, const Norm *norm, float *y)
{
    float mean = norm->shift ? sum(x, dim) / (float)dim : 0.0f;
    float scale = 1.0f / sqrtf(sum_squares(x, dim, mean) / (float)dim + norm->epsilon);
    if (norm->shift)
        for (size_t i = 0; i < dim; i++) y[i] = (x[i] - mean) * scale * norm->gain[i] + norm->shift[i];
    else
        for (size_t i = 0; i < dim; i++) y[i] = x[i] * scale * norm->gain[i];
}

/* ---- queries and keys ---- */

/* What makes the root of the mean square of a query or key one (Dehghani et al. 2023, §2.1). */
static inline float invert_length(const float *x, size_t dim)
{
    return 1.0f / sqrtf(dot(x, x, dim) / (float)dim + 1.1920929e-7f);
}

/* Pairs of coordinates (i, i + half) are rotated by an angle; sign = −1 rotates them back. */
static inline void rotate(float *x, const float *cosines, const float *sines, size_t half, float sign)
{
    for (size_t i = 0; i < half; i++) {
        float c = cosines[i], s = sign * sines[i], first = x[i], second = x[i + half];
        x[i] = first * c - second * s;
        x[i + half] = second * c + first * s;
    }
}

/* ---- products ---- */

/* sums += a b for a few rows of a and `eights` times eight columns of b, of which each two eights are a panel. a is
   read with any strides, so that it may be a transpose. ahead: what is wanted next, fetched in steps of `stride`
   numbers. The compiler makes a version for each `rows` and `eights`. */
INLINE void multiply(int rows, int eights, size_t inner, const float *a, size_t a_row, size_t a_inner, const float *b,
    size_t b_row, size_t b_panel, const float *ahead, size_t stride, Eight sums[ROWS][8])
{
    for (size_t k = 0; k < inner; k++, a += a_inner, b += b_row) {
        Eight parts[8];
        if (stride) __builtin_prefetch(ahead + k * stride, 0, 2);
        for (int j = 0; j < eights; j++) parts[j] = load(b + (size_t)(j / 2) * b_panel + j % 2 * 8);
        for (int row = 0; row < rows; row++)
            for (int j = 0; j < eights; j++) sums[row][j] += a[(size_t)row * a_row] * parts[j];
    }
}

/* The outputs of a panel, of which the last has `count` only. */
INLINE void store_wide(const float found[WIDE], size_t count, float *y)
{
    if (count == WIDE) memcpy(y, found, WIDE * sizeof(float)); /* one or two moves, not a call */
    else memcpy(y, found, count * sizeof(float));
}

/* ---- products of other files ---- */

/* A step through some blocks, one after the other. */
int KERNEL(step)(int threads, int32_t count, const Block *const *blocks, const Step *s, float *const *caches,
    const float *const *keys, const float *const *values, const float *x, float *y);

/* Bytes that the rows of a product take once they are made ready for its precision; none in float32. */
size_t KERNEL(measure_rows)(const Linear *m, size_t rows);

/* y = x Wᵀ + b for rows that the threads share by outputs; room: for the rows made ready. */
void KERNEL(multiply)(int threads, size_t rows, const float *x, const Linear *m, void *room, float *y);

/* For each precision but float32: the bytes of the weights, laying them out, the bytes of a row made ready, making it
   ready, and all rows times up to four panels of outputs from `first` on. */
size_t KERNEL(measure_int8)(const Linear *m);
void KERNEL(pack_int8)(const float *weight, int64_t row_stride, int64_t column_stride, const Linear *m, int8_t *to,
    float *scales, float *totals);
size_t KERNEL(measure_int8_row)(const Linear *m);
void KERNEL(prepare_int8_row)(const Linear *m, const float *x, void *to);
void KERNEL(multiply_int8)(size_t rows, const void *x, const Linear *m, size_t first, float *y);
size_t KERNEL(measure_bfloat16)(const Linear *m);
void KERNEL(pack_bfloat16)(const float *weight, int64_t row_stride, int64_t column_stride, const Linear *m, uint16_t *to);
size_t KERNEL(measure_bfloat16_row)(const Linear *m);
void KERNEL(prepare_bfloat16_row)(const Linear *m, const float *x, void *to);
void KERNEL(multiply_bfloat16)(size_t rows, const void *x, const Linear *m, size_t first, float *y);

/* ---- dropout ---- */

static inline uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* A row of x loses each of its numbers with probability `rate`; the others grow, so that the mean stays. Which are lost
   is a function of the seed and of their place, so that the gradient loses the same. y may be x. */
static inline void drop(float rate, uint64_t seed, int64_t row, size_t count, const float *x, float *y)
{
    uint32_t own = mix((uint32_t)(seed >> 32) + mix((uint32_t)row + mix((uint32_t)seed + (uint32_t)(row >> 32))));
    int32_t below = (int32_t)(rate * 2147483648.0f);
    float factor = 1.0f / (1.0f - rate);
    for (uint32_t t = 0; t < (uint32_t)count; t++)
        y[t] = x[t] * ((int32_t)(mix(own + 0x9e3779b9u * t) >> 1) < below ? 0.0f : factor);
}

#endif
