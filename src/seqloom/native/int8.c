/* Linear layers whose weights and inputs are integers of eight bits.
 *
 *   W_jk ≈ a_j v_jk         v_jk in −127 … 127,  a_j = max_k |W_jk| / 127              once, when weights are packed
 *   x_k  ≈ l + s u_k        u_k  in    0 … 255,  l = min_k x_k, s = (max_k x_k − l) / 255     of each row, each time
 *   y_j  = a_j (s Σ_k u_k v_jk + l Σ_k v_jk) + b_j
 *
 * Sums of integers are exact in any order, and 32 bits hold those of 65,536 inputs. Each output's weights have a scale
 * of their own, since outputs differ; each row of inputs has its own, too, so that it does not depend on the others.
 * What is rounded is rounded to the nearest. A row or an output with a number that is none becomes NaN.
 *
 * Inputs are multiplied in groups. Where the processor has no sum of products of bytes (VNNI), they are widened to 16
 * bits and multiplied in pairs; the sums are the same integers.
 */

#include "kernels.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512VNNI__)
#define GROUP 4
#define TOGETHER 4 /* panels computed side by side: with six rows, as many sums as the registers hold */
typedef uint8_t Input;
typedef int32_t Sums __attribute__((vector_size(64)));
typedef __m512i Weights;
INLINE Sums no_sums(void) { return (Sums){0}; }
INLINE Weights load_weights(const int8_t *v) { return _mm512_loadu_si512(v); }
INLINE __m512i spread(const Input *u) { int32_t four; memcpy(&four, u, 4); return _mm512_set1_epi32(four); }
INLINE Sums add(Sums sums, __m512i u, Weights v) { return (Sums)_mm512_dpbusd_epi32((__m512i)sums, u, v); }
#elif defined(__AVX2__)
#define GROUP 2
#define TOGETHER 1
typedef uint16_t Input;
typedef struct { __m256i low, high; } Sums, Weights;
INLINE Sums no_sums(void) { return (Sums){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE __m256i widen(const int8_t *v) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)v)); }
INLINE Weights load_weights(const int8_t *v) { return (Weights){widen(v), widen(v + 16)}; }
INLINE __m256i spread(const Input *u) { int32_t two; memcpy(&two, u, 4); return _mm256_set1_epi32(two); }
INLINE Sums add(Sums sums, __m256i u, Weights v)
{
    return (Sums){_mm256_add_epi32(sums.low, _mm256_madd_epi16(u, v.low)),
        _mm256_add_epi32(sums.high, _mm256_madd_epi16(u, v.high))};
}
INLINE void keep(Sums sums, int32_t *to)
{
    _mm256_storeu_si256((__m256i *)to, sums.low), _mm256_storeu_si256((__m256i *)(to + 8), sums.high);
}
#else
#define GROUP 1
#define TOGETHER 1
typedef uint8_t Input;
typedef struct { int32_t lane[WIDE]; } Sums;
typedef const int8_t *Weights;
INLINE Sums no_sums(void) { return (Sums){{0}}; }
INLINE Weights load_weights(const int8_t *v) { return v; }
INLINE int32_t spread(const Input *u) { return *u; }
INLINE Sums add(Sums sums, int32_t u, Weights v)
{
    for (int j = 0; j < WIDE; j++) sums.lane[j] += u * v[j];
    return sums;
}
INLINE void keep(Sums sums, int32_t *to) { memcpy(to, sums.lane, sizeof sums.lane); }
#endif

/* y_j = a_j (s Σ_k u_k v_jk + l Σ_k v_jk) + b_j of a panel. */
#if defined(__AVX512VNNI__)
INLINE void finish(Sums sums, float scale, float low, const float *totals, const float *scales, const float *bias, float *y)
{
    __m512 sum = _mm512_mul_ps(_mm512_set1_ps(low), _mm512_loadu_ps(totals));
    sum = _mm512_fmadd_ps(_mm512_set1_ps(scale), _mm512_cvtepi32_ps((__m512i)sums), sum);
    _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_loadu_ps(scales), sum, _mm512_loadu_ps(bias)));
}
#else
INLINE void finish(Sums sums, float scale, float low, const float *totals, const float *scales, const float *bias, float *y)
{
    int32_t integers[WIDE];
    keep(sums, integers);
    for (int j = 0; j < WIDE; j++)
        y[j] = __builtin_fmaf(scales[j], __builtin_fmaf(scale, (float)integers[j], low * totals[j]), bias[j]);
}
#endif

static size_t count_groups(const Linear *m)
{
    return ((size_t)m->inputs + GROUP - 1) / GROUP;
}

/* ---- weights ---- */

size_t KERNEL(measure_int8)(const Linear *m)
{
    return ((size_t)m->outputs + WIDE - 1) / WIDE * WIDE * count_groups(m) * GROUP;
}

void KERNEL(pack_int8)(const float *weight, int64_t row_stride, int64_t column_stride, const Linear *m, int8_t *to,
    float *scales, float *totals)
{
    size_t groups = count_groups(m), inputs = (size_t)m->inputs, outputs = (size_t)m->outputs;
    memset(to, 0, KERNEL(measure_int8)(m));
    for (size_t j = 0; j < (outputs + WIDE - 1) / WIDE * WIDE; j++) {
        const float *from = weight + (int64_t)j * row_stride;
        int8_t *panel = to + j / WIDE * WIDE * groups * GROUP + j % WIDE * GROUP;
        float most = 0.0f, strange = 0.0f;
        int32_t total = 0;
        for (size_t k = 0; j < outputs && k < inputs; k++) {
            float w = from[(int64_t)k * column_stride];
            most = fabsf(w) > most ? fabsf(w) : most;
            strange += 0.0f * w; /* NaN, unless all are numbers */
        }
        scales[j] = most / 127.0f + strange;
        for (size_t k = 0; scales[j] > 0.0f && k < inputs; k++) {
            int v = (int)rintf(from[(int64_t)k * column_stride] / scales[j]);
            v = v > 127 ? 127 : v < -127 ? -127 : v; /* the scale of the least numbers has few digits */
            panel[k / GROUP * WIDE * GROUP + k % GROUP] = (int8_t)v;
            total += v;
        }
        totals[j] = (float)total;
    }
}

/* ---- rows of inputs ---- */

/* x_k ≈ low + scale u_k, and the u_k after it. */
typedef struct { float scale, low; } Row;

size_t KERNEL(measure_int8_row)(const Linear *m)
{
    return (sizeof(Row) + count_groups(m) * GROUP * sizeof(Input) + 7) / 8 * 8;
}

void KERNEL(prepare_int8_row)(const Linear *m, const float *x, void *to)
{
    size_t count = (size_t)m->inputs, i = 0;
    float low[SPREAD], high[SPREAD], strange[SPREAD] = {0};
    Input *u = (Input *)((Row *)to + 1);
    for (int j = 0; j < SPREAD; j++) low[j] = INFINITY, high[j] = -INFINITY;
    for (; i + SPREAD <= count; i += SPREAD)
        for (int j = 0; j < SPREAD; j++) {
            low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
            high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
            strange[j] += 0.0f * x[i + j];
        }
    for (int j = 0; i + (size_t)j < count; j++) {
        low[j] = x[i + (size_t)j] < low[j] ? x[i + (size_t)j] : low[j];
        high[j] = x[i + (size_t)j] > high[j] ? x[i + (size_t)j] : high[j];
        strange[j] += 0.0f * x[i + (size_t)j];
    }
    float least_one = low[0], largest = high[0], none = 0.0f;
    for (int j = 0; j < SPREAD; j++) {
        least_one = low[j] < least_one ? low[j] : least_one;
        largest = high[j] > largest ? high[j] : largest;
        none += strange[j];
    }
    float range = largest - least_one, steps = range > 1e-36f ? 255.0f / range : 0.0f;
    *(Row *)to = (Row){(steps > 0.0f ? range / 255.0f : 0.0f) + none, least_one};
    for (i = 0; i < count; i++) { /* at 2^23 a float has no room for fractions, so adding it rounds */
        union { float f; uint32_t bits; } rounded = {__builtin_fmaf(x[i] - least_one, steps, 8388608.0f)};
        u[i] = (uint8_t)rounded.bits;
    }
    for (; i < count_groups(m) * GROUP; i++) u[i] = 0;
}

/* ---- products ---- */

/* ahead: what is wanted next of each panel, fetched in steps of `stride` bytes. */
INLINE void multiply_panels(int rows, int panels, const char *x, const Linear *m, size_t first, const int8_t *ahead,
    size_t stride, float *y)
{
    const size_t groups = count_groups(m), panel = WIDE * GROUP * groups, outputs = (size_t)m->outputs;
    const size_t size = KERNEL(measure_int8_row)(m);
    const int8_t *v = (const int8_t *)m->weight + first / WIDE * panel;
    Sums sums[ROWS][4];
    for (int row = 0; row < rows; row++)
        for (int p = 0; p < panels; p++) {
            sums[row][p] = no_sums();
            __builtin_prefetch(y + (size_t)row * outputs + first + p * WIDE, 1);
        }
    for (size_t g = 0; g < groups; g++, v += WIDE * GROUP, ahead += stride) {
        Weights parts[4];
        for (int p = 0; stride && p < panels; p++) __builtin_prefetch(ahead + (size_t)p * panel, 0, 2);
        for (int p = 0; p < panels; p++) parts[p] = load_weights(v + (size_t)p * panel);
        for (int row = 0; row < rows; row++) {
            const Input *u = (const Input *)(x + (size_t)row * size + sizeof(Row)) + GROUP * g;
            for (int p = 0; p < panels; p++) sums[row][p] = add(sums[row][p], spread(u), parts[p]);
        }
    }
    for (int row = 0; row < rows; row++) {
        const Row *r = (const Row *)(x + (size_t)row * size);
        for (int p = 0; p < panels; p++) {
            size_t at = first + (size_t)p * WIDE;
            float found[WIDE];
            finish(sums[row][p], r->scale, r->low, m->totals + at, m->scales + at, m->bias + at, found);
            store_wide(found, least(outputs - at, WIDE), y + (size_t)row * outputs + at);
        }
    }
}

/* All rows times some panels. Meanwhile the next come: few rows are as fast as weights are read. */
INLINE void multiply_rows(int panels, size_t rows, const char *x, const Linear *m, size_t first, float *y)
{
    size_t size = KERNEL(measure_int8_row)(m), outputs = (size_t)m->outputs, groups = count_groups(m);
    size_t passes = most_of((rows + ROWS - 1) / ROWS, 1), stride = most_of(WIDE * GROUP / passes, 1);
    const int8_t *ahead = (const int8_t *)m->weight + (first + (size_t)panels * WIDE) * GROUP * groups;
    for (size_t row = 0; row < rows; row += ROWS, ahead += stride * groups) {
        const char *from = x + row * size;
        float *to = y + row * outputs;
        switch (rows - row) {
        case 1: multiply_panels(1, panels, from, m, first, ahead, stride, to); break;
        case 2: multiply_panels(2, panels, from, m, first, ahead, stride, to); break;
        case 3: multiply_panels(3, panels, from, m, first, ahead, stride, to); break;
        case 4: multiply_panels(4, panels, from, m, first, ahead, stride, to); break;
        case 5: multiply_panels(5, panels, from, m, first, ahead, stride, to); break;
        default: multiply_panels(ROWS, panels, from, m, first, ahead, stride, to);
        }
    }
}

void KERNEL(multiply_int8)(size_t rows, const void *x, const Linear *m, size_t first, float *y)
{
    size_t end = least(first + 4 * WIDE, (size_t)m->outputs);
    if (first + 3 * WIDE < end && (TOGETHER == 4 || rows == 1)) multiply_rows(4, rows, x, m, first, y);
    else
        for (; first < end; first += WIDE) multiply_rows(1, rows, x, m, first, y);
}
