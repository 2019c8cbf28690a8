/* Linear layers in float32, and what a layer of any precision is called by.
 *
 * PyTorch's products of some dozens of rows reach half of what a processor can do, because the weights are laid out anew
 * in each. Here they are laid out once. */

#include "kernels.h"

static size_t pad_outputs(const Linear *m)
{
    return ((size_t)m->outputs + WIDE - 1) / WIDE * WIDE;
}

/* Bytes that `pack` fills: panels of weights, then numbers of each output. m has its sizes and its precision. */
API int64_t KERNEL(packed_size)(const Linear *m)
{
    size_t padded = pad_outputs(m), weights = padded * (size_t)m->inputs * sizeof(float);
    if (m->precision == INT8) weights = KERNEL(measure_int8)(m);
    if (m->precision == BFLOAT16) weights = KERNEL(measure_bfloat16)(m);
    return (int64_t)(weights + 3 * padded * sizeof(float));
}

static void pack_float32(const float *weight, int64_t row_stride, int64_t column_stride, const Linear *m, float *to)
{
    for (int64_t first = 0; first < (int64_t)pad_outputs(m); first += WIDE)
        for (int64_t k = 0; k < m->inputs; k++)
            for (int64_t j = first; j < first + WIDE; j++)
                *to++ = j < m->outputs ? weight[j * row_stride + k * column_stride] : 0.0f;
}

/* Weights of any strides, and a bias or NULL, laid out in `to`; m gets its pointers. */
API void KERNEL(pack)(const float *weight, int64_t row_stride, int64_t column_stride, const float *bias, void *to,
    Linear *m)
{
    size_t padded = pad_outputs(m), size = (size_t)KERNEL(packed_size)(m) - 3 * padded * sizeof(float);
    float *rest = (float *)((char *)to + size);
    m->weight = to;
    m->bias = rest, m->scales = m->totals = NULL;
    for (size_t j = 0; j < padded; j++) rest[j] = bias && j < (size_t)m->outputs ? bias[j] : 0.0f;
    if (m->precision == FLOAT32) pack_float32(weight, row_stride, column_stride, m, to);
    if (m->precision == BFLOAT16) KERNEL(pack_bfloat16)(weight, row_stride, column_stride, m, to);
    if (m->precision == INT8) {
        m->scales = rest + padded, m->totals = rest + 2 * padded;
        KERNEL(pack_int8)(weight, row_stride, column_stride, m, to, rest + padded, rest + 2 * padded);
    }
}

#if defined(__AVX512F__)
#define LANES 16
#define TOGETHER 4 /* panels computed side by side: with six rows, as many sums as the registers hold */
#else
#define LANES 8
#define TOGETHER 1
#endif
#define PIECES (WIDE / LANES)
typedef float Piece __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* of the numbers of a panel */

/* Some rows times the inputs from `start` on of some panels; beyond the first inputs, y goes on from what it is.
   ahead: what is wanted next of each panel, fetched in steps of `stride` numbers. */
INLINE void multiply_panels(int rows, int panels, const float *x, const Linear *m, size_t first, size_t start,
    size_t inputs, const float *ahead, size_t stride, float *y)
{
    const int parts = PIECES * panels;
    const size_t all = (size_t)m->inputs, width = (size_t)m->outputs, panel = WIDE * all;
    const size_t count = least(width - first, (size_t)WIDE * (size_t)panels);
    const float *w = (const float *)m->weight + first * all + start * WIDE;
    Piece sums[ROWS][4 * PIECES];
    for (int row = 0; row < rows; row++) {
        const float *from = start ? y + (size_t)row * width + first : m->bias + first;
        if (count == (size_t)WIDE * (size_t)panels || !start)
            for (int j = 0; j < parts; j++) sums[row][j] = *(const Piece *)(from + LANES * j);
        else {
            for (int j = 0; j < parts; j++) sums[row][j] = (Piece){0};
            memcpy(sums[row], from, count * sizeof(float));
        }
    }
    for (int row = 0; row < rows; row++)
        for (int p = 0; p < panels; p++) __builtin_prefetch(y + (size_t)row * width + first + p * WIDE, 1);
    for (size_t k = 0; k < inputs; k++, w += WIDE, ahead += stride) {
        Piece now[4 * PIECES];
        for (int p = 0; stride && p < panels; p++) __builtin_prefetch(ahead + (size_t)p * panel, 0, 2);
        for (int j = 0; j < parts; j++)
            now[j] = *(const Piece *)(w + (size_t)(j / PIECES) * panel + (size_t)(j % PIECES) * LANES);
        for (int row = 0; row < rows; row++)
            for (int j = 0; j < parts; j++) sums[row][j] += x[(size_t)row * all + start + k] * now[j];
    }
    for (int row = 0; row < rows; row++)
        if (count == (size_t)WIDE * (size_t)panels)
            for (int j = 0; j < parts; j++) *(Piece *)(y + (size_t)row * width + first + LANES * j) = sums[row][j];
        else memcpy(y + (size_t)row * width + first, sums[row], count * sizeof(float));
}

/* Up to six rows. */
INLINE void multiply_few(size_t rows, int panels, const float *x, const Linear *m, size_t first, size_t start,
    size_t inputs, const float *ahead, size_t stride, float *y)
{
    switch (rows) {
    case 1: multiply_panels(1, panels, x, m, first, start, inputs, ahead, stride, y); break;
    case 2: multiply_panels(2, panels, x, m, first, start, inputs, ahead, stride, y); break;
    case 3: multiply_panels(3, panels, x, m, first, start, inputs, ahead, stride, y); break;
    case 4: multiply_panels(4, panels, x, m, first, start, inputs, ahead, stride, y); break;
    case 5: multiply_panels(5, panels, x, m, first, start, inputs, ahead, stride, y); break;
    default: multiply_panels(ROWS, panels, x, m, first, start, inputs, ahead, stride, y);
    }
}

/* Some panels, DEEP inputs at a time, which stay in a near cache while all rows pass; the next come meanwhile. Few rows
   are as fast as weights are read, which is fastest from four places at a time. */
INLINE void multiply_rows(int panels, size_t rows, const float *x, const Linear *m, size_t first, float *y)
{
    size_t passes = (rows + ROWS - 1) / ROWS, stride = passes > WIDE ? 1 : WIDE / most_of(passes, 1);
    size_t all = (size_t)m->inputs, deep = passes > 1 ? DEEP : most_of(all, 1);
    for (size_t start = 0; start == 0 || start < all; start += deep) {
        size_t inputs = least(all - start, deep);
        const float *ahead = (const float *)m->weight + first * all + (start + inputs) * WIDE;
        if (start + inputs == all) ahead += (size_t)(panels - 1) * WIDE * all;
        for (size_t row = 0; row < rows; row += ROWS, ahead += inputs * stride)
            multiply_few(least(rows - row, ROWS), panels, x + row * all, m, first, start, inputs, ahead, stride,
                y + row * (size_t)m->outputs);
    }
}

/* All rows times up to four panels of outputs from `first` on. */
static void multiply_float32(size_t rows, const float *x, const Linear *m, size_t first, float *y)
{
    size_t end = least(first + 4 * WIDE, (size_t)m->outputs);
    if (first + 3 * WIDE < end && TOGETHER == 4) multiply_rows(4, rows, x, m, first, y);
    else if (first + 3 * WIDE < end && rows == 1) multiply_rows(4, 1, x, m, first, y);
    else
        for (; first < end; first += WIDE) multiply_rows(1, rows, x, m, first, y);
}

/* ---- a layer of any precision ---- */

size_t KERNEL(measure_rows)(const Linear *m, size_t rows)
{
    switch (m->precision) {
    case INT8: return rows * KERNEL(measure_int8_row)(m);
    case BFLOAT16: return rows * KERNEL(measure_bfloat16_row)(m);
    default: return 0;
    }
}

static void prepare_rows(int threads, size_t rows, const float *x, const Linear *m, char *room)
{
    size_t inputs = (size_t)m->inputs, size = KERNEL(measure_rows)(m, 1);
    #pragma omp parallel for num_threads(threads) if (threads > 1 && rows * inputs * 8 > WORTH_THREADS)
    for (size_t row = 0; row < rows; row++)
        if (m->precision == INT8) KERNEL(prepare_int8_row)(m, x + row * inputs, room + row * size);
        else KERNEL(prepare_bfloat16_row)(m, x + row * inputs, room + row * size);
}

/* All rows times up to four panels of outputs from `first` on. */
static void multiply_some(size_t rows, const void *x, const Linear *m, size_t first, float *y)
{
    if (m->precision == INT8) KERNEL(multiply_int8)(rows, x, m, first, y);
    else if (m->precision == BFLOAT16) KERNEL(multiply_bfloat16)(rows, x, m, first, y);
    else multiply_float32(rows, x, m, first, y);
}

/* (Even a parallel region of one thread costs a microsecond.) */
void KERNEL(multiply)(int threads, size_t rows, const float *x, const Linear *m, void *room, float *y)
{
    size_t outputs = (size_t)m->outputs, together = 4 * WIDE;
    const void *given = m->precision == FLOAT32 ? (const void *)x : room;
    if (threads > 1 && rows * (size_t)m->inputs * outputs <= WORTH_READING) threads = 1;
    if (given == room) prepare_rows(threads, rows, x, m, room);
    if (threads == 1)
        for (size_t first = 0; first < outputs; first += together) multiply_some(rows, given, m, first, y);
    else {
        #pragma omp parallel for schedule(dynamic) num_threads(threads)
        for (size_t first = 0; first < outputs; first += together) multiply_some(rows, given, m, first, y);
    }
}

/* y = x Wᵀ + b */
API int KERNEL(linear)(int threads, int64_t count, const float *x, const Linear *m, float *y)
{
    size_t rows = (size_t)count, inputs = (size_t)m->inputs, outputs = (size_t)m->outputs, many = rows >= MANY;
    size_t own = KERNEL(measure_rows)(m, many ? CHUNK : rows);
    char *room = own ? reserve((many ? (size_t)threads : 1), own) : NULL;
    if (own && !room) return NO_MEMORY;
    if (!many) KERNEL(multiply)(threads, rows, x, m, room, y);
    else {
        #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
        for (size_t row = 0; row < rows; row += CHUNK)
            KERNEL(multiply)(1, least(rows - row, CHUNK), x + row * inputs, m,
                room + (size_t)omp_get_thread_num() * own, y + row * outputs);
    }
    free(room);
    return OK;
}
