/* Linear layers whose weights and inputs are bfloat16: float32 with the last 16 of its 32 bits rounded away.
 *
 *   y_j = b_j + x_1 W_j1 + x_0 W_j0 + x_3 W_j3 + x_2 W_j2 + …
 *
 * Products of two such numbers are exact in float32, and the sums are float32. The order, and zero in place of numbers
 * below 2^−126, are those of the instruction of processors that have one (VDPBF16PS). Where there is none, the same
 * steps give the same bits, with weights that take half of the memory.
 */

#include "bfloat16.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512BF16__)
#define TOGETHER 4 /* panels computed side by side: with six rows, as many sums as the registers hold */
typedef uint16_t Input;
typedef __m512 Sums;
typedef __m512bh Weights;
INLINE Input take(uint16_t bits) { return bits; }
INLINE Sums start(const float *bias) { return _mm512_loadu_ps(bias); }
INLINE Weights load_weights(const uint16_t *w) { return (Weights)_mm512_loadu_si512(w); }
INLINE Sums add(Sums sums, const Input *x, Weights w)
{
    int32_t pair;
    memcpy(&pair, x, 4);
    return _mm512_dpbf16_ps(sums, (Weights)_mm512_set1_epi32(pair), w);
}
INLINE void keep(Sums sums, float *to) { _mm512_storeu_ps(to, sums); }
#else
#define TOGETHER 1
typedef float Input;
typedef uint32_t Bits __attribute__((vector_size(32), aligned(2), may_alias));
typedef struct { Eight low, high; } Sums;
typedef struct { Eight first[2], second[2]; } Weights; /* of the pairs of inputs */
INLINE Input take(uint16_t bits) { return widen(bits); }
INLINE Sums start(const float *bias) { return (Sums){load(bias), load(bias + 8)}; }
INLINE Weights load_weights(const uint16_t *w)
{
    Bits low = *(const Bits *)w, high = *(const Bits *)(w + 16);
    return (Weights){{(Eight)(low << 16), (Eight)(high << 16)}, {(Eight)(low & 0xffff0000u), (Eight)(high & 0xffff0000u)}};
}
INLINE Sums add(Sums sums, const Input *x, Weights w)
{
    sums.low += x[1] * w.second[0], sums.high += x[1] * w.second[1];
    sums.low += x[0] * w.first[0], sums.high += x[0] * w.first[1];
    return sums;
}
INLINE void keep(Sums sums, float *to) { store(to, sums.low), store(to + 8, sums.high); }
#endif

static size_t count_pairs(const Linear *m)
{
    return ((size_t)m->inputs + 1) / 2;
}

size_t KERNEL(measure_bfloat16)(const Linear *m)
{
    return ((size_t)m->outputs + WIDE - 1) / WIDE * WIDE * count_pairs(m) * 2 * sizeof(uint16_t);
}

void KERNEL(pack_bfloat16)(const float *weight, int64_t row_stride, int64_t column_stride, const Linear *m, uint16_t *to)
{
    for (int64_t first = 0; first < m->outputs; first += WIDE)
        for (int64_t pair = 0; pair < (int64_t)count_pairs(m); pair++)
            for (int64_t j = first; j < first + WIDE; j++)
                for (int64_t k = 2 * pair; k < 2 * pair + 2; k++)
                    *to++ = j < m->outputs && k < m->inputs ? shorten(weight[j * row_stride + k * column_stride]) : 0;
}

size_t KERNEL(measure_bfloat16_row)(const Linear *m)
{
    return count_pairs(m) * 2 * sizeof(Input);
}

void KERNEL(prepare_bfloat16_row)(const Linear *m, const float *x, void *to)
{
    Input *row = to;
    for (size_t k = 0; k < (size_t)m->inputs; k++) row[k] = take(shorten(x[k]));
    if (m->inputs % 2) row[m->inputs] = 0;
}

INLINE void multiply_panels(int rows, int panels, const Input *x, const Linear *m, size_t first, float *y)
{
    const size_t pairs = count_pairs(m), panel = WIDE * 2 * pairs, outputs = (size_t)m->outputs;
    const uint16_t *w = (const uint16_t *)m->weight + first / WIDE * panel;
    Sums sums[ROWS][4];
    for (int row = 0; row < rows; row++)
        for (int p = 0; p < panels; p++) sums[row][p] = start(m->bias + first + (size_t)p * WIDE);
    for (size_t pair = 0; pair < pairs; pair++, w += WIDE * 2) {
        Weights parts[4];
        for (int p = 0; p < panels; p++) parts[p] = load_weights(w + (size_t)p * panel);
        for (int row = 0; row < rows; row++)
            for (int p = 0; p < panels; p++)
                sums[row][p] = add(sums[row][p], x + 2 * ((size_t)row * pairs + pair), parts[p]);
    }
    for (int row = 0; row < rows; row++)
        for (int p = 0; p < panels; p++) {
            size_t at = first + (size_t)p * WIDE;
            float found[WIDE];
            keep(sums[row][p], found);
            store_wide(found, least(outputs - at, WIDE), y + (size_t)row * outputs + at);
        }
}

INLINE void multiply_rows(int panels, size_t rows, const Input *x, const Linear *m, size_t first, float *y)
{
    for (size_t row = 0; row < rows; row += ROWS) {
        const Input *from = x + row * count_pairs(m) * 2;
        float *to = y + row * (size_t)m->outputs;
        switch (rows - row) {
        case 1: multiply_panels(1, panels, from, m, first, to); break;
        case 2: multiply_panels(2, panels, from, m, first, to); break;
        case 3: multiply_panels(3, panels, from, m, first, to); break;
        case 4: multiply_panels(4, panels, from, m, first, to); break;
        case 5: multiply_panels(5, panels, from, m, first, to); break;
        default: multiply_panels(ROWS, panels, from, m, first, to);
        }
    }
}

static __attribute__((noinline)) void multiply_some(size_t rows, const Input *x, const Linear *m, size_t first, float *y)
{
    size_t end = least(first + 4 * WIDE, (size_t)m->outputs);
    if (first + 3 * WIDE < end && TOGETHER == 4) multiply_rows(4, rows, x, m, first, y);
    else
        for (; first < end; first += WIDE) multiply_rows(1, rows, x, m, first, y);
}

/* The instruction takes numbers below 2^−126 for zero, and its sums below it are zero; elsewhere a processor is told to. */
void KERNEL(multiply_bfloat16)(size_t rows, const void *x, const Linear *m, size_t first, float *y)
{
#if defined(__x86_64__) && !defined(__AVX512BF16__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* denormals are zero, in and out */
    multiply_some(rows, x, m, first, y);
    _mm_setcsr(before);
#else
    multiply_some(rows, x, m, first, y);
#endif
}
