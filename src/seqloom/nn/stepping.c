/* A Transformer block's step of decoding, in one call; and of whole sequences, all that follows their attention.
 *
 * PyTorch needs longer to call the fifty operations of a block than a processor needs for one row of them; its
 * products of some dozens of rows reach half of what the processor can do, because the weights are laid out anew in
 * each; and of many rows, it brings all to memory after each operation. Here the weights are laid out once, and rows
 * stay in the cache. The mathematics is that of nn/transformer.py, which says what it is; stepping.py lays the weights
 * out and decides when this is used.
 *
 *   x ──▶ (+ self-attention) ──▶ (+ cross-attention, if there is a source) ──▶ (+ feed-forward) ──▶
 */

#include "native.h"
#include <string.h>

#define WIDE 16 /* outputs computed side by side: with six rows, as many sums as the registers of AVX2 hold */
#define ROWS 6
#define DEEP 256 /* inputs: the weights of WIDE outputs for them fill half of the nearest cache */
#define CHUNK 60 /* rows: what a block computes of them stays in the cache of a core */
#define MANY (8 * CHUNK) /* rows: each thread takes a chunk at a time; of fewer, the threads share the outputs */
#define WORTH_READING 60000 /* weights: two threads read more of them at a time from the cache that they share */

typedef struct {
    const float *weight; /* for each WIDE outputs, for each input, their weights: read once, in this order */
    const float *bias;
    int inputs, outputs; /* weight and bias are filled up with zeros to a multiple of WIDE outputs */
} Linear;

typedef struct {
    const float *gain, *shift; /* shift is NULL for RMSNorm */
    float epsilon;
} Norm;

typedef struct {
    int model_dim, heads, key_value_heads, head_dim, hidden_dim, post_norm, gated, bend;
    Norm attention_norm, cross_norm, feedforward_norm;
    Linear in, out, query, cross_out, expand, contract;
    const float *frequencies; /* of rotary positions, or NULL */
} Block;

typedef struct {
    int batch, beams, room, position, source_length;
    float *past;               /* (batch, 2 key_value_heads, room, beams, head_dim): keys, then values */
    const float *ancestry;     /* (batch, beams, position + 1, beams): 0 where a beam's own past is, or NULL */
    const float *keys, *values; /* (batch, heads, source_length, head_dim), or NULL without a source */
    const float *source_bias;  /* (batch, source_length): minus infinity for padding, or NULL */
} Step;

static inline float hyperbolic_tangent(float x)
{
    return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
}

/* Abramowitz & Stegun 7.1.26, right to 2 in 10^7. */
static inline float error_function(float x)
{
    float size = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.3275911f * size);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float value = 1.0f - p * exponential(-size * size);
    return x < 0.0f ? -value : value;
}

/* Some rows times `inputs` rows of some panels of WIDE outputs, from `start` on. ahead: what is wanted next, fetched in
   steps of `stride` numbers. The compiler makes a version for each `rows` and `panels`. */
static inline __attribute__((always_inline)) void multiply(int rows, int panels, const float *x, const Linear *m, int first,
    int start, int inputs, const float *ahead, int stride, float *y)
{
    const int halves = WIDE / 8 * panels;
    const float *weight = m->weight + (size_t)first * m->inputs + (size_t)start * WIDE;
    int left = m->outputs - first, count = left < WIDE * panels ? left : WIDE * panels;
    Eight sums[ROWS][8];
    for (int row = 0; row < rows; row++) {
        const float *from = start ? y + (size_t)row * m->outputs + first : m->bias + first;
        if (count == WIDE * panels || !start)
            for (int j = 0; j < halves; j++) sums[row][j] = *(const Eight *)(from + 8 * j);
        else memcpy(sums[row], from, count * sizeof(float));
    }
    x += start;
    for (int k = 0; k < inputs; k++, weight += WIDE, ahead += stride) {
        Eight parts[8];
        if (stride) __builtin_prefetch(ahead, 0, 2);
        for (int j = 0; j < halves; j++)
            parts[j] = *(const Eight *)(weight + (size_t)(j / 2) * WIDE * m->inputs + j % 2 * 8);
        for (int row = 0; row < rows; row++)
            for (int j = 0; j < halves; j++) sums[row][j] += x[(size_t)row * m->inputs + k] * parts[j];
    }
    for (int row = 0; row < rows; row++)
        if (count == WIDE * panels)
            for (int j = 0; j < halves; j++) *(Eight *)(y + (size_t)row * m->outputs + first + 8 * j) = sums[row][j];
        else memcpy(y + (size_t)row * m->outputs + first, sums[row], count * sizeof(float));
}

/* One row alone is as fast as its weights are read, which is fastest from four places at a time. */
static void multiply_row(const float *x, const Linear *m, int first, float *y)
{
    if (first + 3 * WIDE < m->outputs) multiply(1, 4, x, m, first, 0, m->inputs, NULL, 0, y);
    else
        for (; first < m->outputs; first += WIDE) multiply(1, 1, x, m, first, 0, m->inputs, NULL, 0, y);
}

/* A panel, DEEP inputs of it at a time, which stay in the nearest cache while all rows pass; the next come meanwhile. */
static void multiply_rows(int rows, const float *x, const Linear *m, int first, float *y)
{
    int passes = (rows + ROWS - 1) / ROWS, stride = passes < 2 ? 0 : passes < WIDE ? WIDE / passes : 1;
    for (int start = 0; start < m->inputs; start += DEEP) {
        int inputs = m->inputs - start < DEEP ? m->inputs - start : DEEP;
        const float *ahead = m->weight + (size_t)first * m->inputs + (size_t)(start + inputs) * WIDE;
        for (int row = 0; row < rows; row += ROWS, ahead += inputs * stride) {
            const float *from = x + (size_t)row * m->inputs;
            float *to = y + (size_t)row * m->outputs;
            switch (rows - row) {
            case 1: multiply(1, 1, from, m, first, start, inputs, ahead, stride, to); break;
            case 2: multiply(2, 1, from, m, first, start, inputs, ahead, stride, to); break;
            case 3: multiply(3, 1, from, m, first, start, inputs, ahead, stride, to); break;
            case 4: multiply(4, 1, from, m, first, start, inputs, ahead, stride, to); break;
            case 5: multiply(5, 1, from, m, first, start, inputs, ahead, stride, to); break;
            default: multiply(6, 1, from, m, first, start, inputs, ahead, stride, to);
            }
        }
    }
}

/* y = x Wᵀ + b. A sum is made in the same order whatever the number of rows and threads. */
void linear(int rows, const float *x, const Linear *m, float *y)
{
    if (rows >= MANY) {
        #pragma omp parallel for schedule(dynamic)
        for (int row = 0; row < rows; row += CHUNK)
            linear(rows - row < CHUNK ? rows - row : CHUNK, x + (size_t)row * m->inputs, m, y + (size_t)row * m->outputs);
        return;
    }
    int together = rows == 1 ? 4 * WIDE : WIDE;
    #pragma omp parallel for schedule(dynamic, 4) if ((size_t)rows * m->inputs * m->outputs > WORTH_READING)
    for (int first = 0; first < m->outputs; first += together)
        if (rows == 1) multiply_row(x, m, first, y);
        else multiply_rows(rows, x, m, first, y);
}

static void normalise(int rows, int dim, const float *x, const Norm *norm, float *y)
{
    for (int row = 0; row < rows; row++, x += dim, y += dim) {
        float mean = 0.0f, square = 0.0f;
        if (norm->shift)
            for (int i = 0; i < dim; i++) mean += x[i];
        mean /= dim;
        for (int i = 0; i < dim; i++) square += (x[i] - mean) * (x[i] - mean);
        float scale = 1.0f / sqrtf(square / dim + norm->epsilon);
        for (int i = 0; i < dim; i++)
            y[i] = (x[i] - mean) * scale * norm->gain[i] + (norm->shift ? norm->shift[i] : 0.0f);
    }
}

/* What a row reads of the residual stream, and what becomes of the stream when it has been written to. */
static const float *enter(const Block *b, int rows, const float *x, const Norm *norm, float *buffer)
{
    if (b->post_norm) return x;
    normalise(rows, b->model_dim, x, norm, buffer);
    return buffer;
}

static void leave(const Block *b, int rows, float *x, const float *added, const Norm *norm)
{
    int dim = b->model_dim;
    #pragma omp parallel for if ((size_t)rows * dim * 64 > WORTH_THREADS)
    for (int row = 0; row < rows; row++) {
        float *own = x + (size_t)row * dim;
        for (int i = 0; i < dim; i++) own[i] += added[(size_t)row * dim + i];
        if (b->post_norm) normalise(1, dim, own, norm, own);
    }
}

/* Eight sums of eight numbers each, side by side. */
static inline Eight add_up(const Eight *x)
{
    typedef int Places __attribute__((vector_size(32)));
    const Places even = {0, 8, 2, 10, 4, 12, 6, 14}, odd = {1, 9, 3, 11, 5, 13, 7, 15};
    const Places front = {0, 1, 8, 9, 4, 5, 12, 13}, back = {2, 3, 10, 11, 6, 7, 14, 15};
    const Places low = {0, 1, 2, 3, 8, 9, 10, 11}, high = {4, 5, 6, 7, 12, 13, 14, 15};
    Eight pairs[4], fours[2];
    for (int i = 0; i < 4; i++)
        pairs[i] = __builtin_shuffle(x[2 * i], x[2 * i + 1], even) + __builtin_shuffle(x[2 * i], x[2 * i + 1], odd);
    for (int i = 0; i < 2; i++)
        fours[i] = __builtin_shuffle(pairs[2 * i], pairs[2 * i + 1], front)
            + __builtin_shuffle(pairs[2 * i], pairs[2 * i + 1], back);
    return __builtin_shuffle(fours[0], fours[1], low) + __builtin_shuffle(fours[0], fours[1], high);
}

/* One query of one head looks at `count` places: out = Σ_t softmax_t(scale · query · key_t + bias_t) value_t.
   places: where the keys and values stand, filled up to a multiple of eight; scores: room for as many numbers. */
static void attend(const float *query, const float *keys, const float *values, const int *places, const float *bias,
    int count, int dim, float *scores, float *out)
{
    float scale = 1.0f / sqrtf(dim), sum = 0.0f;
    int padded = (count + 7) / 8 * 8;
    for (int t = 0; t < padded; t += 8) {
        Eight sums[8] = {0};
        int i = 0;
        for (int j = 0; j < 8; j++)
            for (int line = 0; line < dim; line += 16) __builtin_prefetch(values + places[t + j] + line);
        for (; i + 8 <= dim; i += 8)
            for (int j = 0; j < 8; j++) sums[j] += *(const Eight *)(query + i) * *(const Eight *)(keys + places[t + j] + i);
        for (; i < dim; i++)
            for (int j = 0; j < 8; j++) sums[j][0] += query[i] * keys[places[t + j] + i];
        *(Eight *)(scores + t) = scale * add_up(sums);
    }
    if (bias)
        for (int t = 0; t < count; t++) scores[t] += bias[t];
    for (int t = count; t < padded; t++) scores[t] = -INFINITY;
    float most = find_largest(scores, padded);
    for (int t = 0; t < padded; t++) scores[t] = scores[t] == -INFINITY ? 0.0f : exponential(scores[t] - most);
    for (int t = 0; t < padded; t++) sum += scores[t];
    float share = sum > 0.0f ? 1.0f / sum : 0.0f;
    int i = 0;
    for (; i + 32 <= dim; i += 32) {
        Eight sums[4] = {0};
        for (int t = 0; t < count; t++)
            for (int j = 0; j < 4; j++) sums[j] += scores[t] * *(const Eight *)(values + places[t] + i + 8 * j);
        for (int j = 0; j < 4; j++) *(Eight *)(out + i + 8 * j) = share * sums[j];
    }
    for (; i < dim; i++) {
        float mean = 0.0f;
        for (int t = 0; t < count; t++) mean += scores[t] * values[places[t] + i];
        out[i] = share * mean;
    }
}

/* Pairs of coordinates (i, i + dim/2) turn by position · frequency. */
static void turn(float *head, const float *frequencies, int dim, int position)
{
    for (int i = 0; i < dim / 2; i++) {
        float angle = position * frequencies[i], c = cosf(angle), s = sinf(angle), first = head[i];
        head[i] = first * c - head[i + dim / 2] * s;
        head[i + dim / 2] = head[i + dim / 2] * c + first * s;
    }
}

/* The past of one line, for each of its beams. */
static void attend_to_past(const Block *b, const Step *s, int line, float *projected, float *mixed)
{
    int dim = b->head_dim, groups = b->key_value_heads, shared = b->heads / groups, end = s->position + 1;
    int padded = (end + 7) / 8 * 8, places[s->beams][padded];
    size_t place = (size_t)dim * s->beams, group = place * s->room, width = (size_t)(b->heads + 2 * groups) * dim;
    float scores[padded], *past = s->past + line * group * 2 * groups;
    projected += line * s->beams * width;
    for (int beam = 0; beam < s->beams; beam++) {
        float *query = projected + beam * width, *own = past + s->position * place + (size_t)beam * dim;
        if (b->frequencies)
            for (int head = 0; head < b->heads + groups; head++) turn(query + head * dim, b->frequencies, dim, s->position);
        for (int head = 0; head < 2 * groups; head++)
            memcpy(own + head * group, query + (b->heads + head) * dim, dim * sizeof(float));
    }
    for (int beam = 0; beam < s->beams; beam++) {
        size_t row = (size_t)(line * s->beams + beam) * end;
        for (int t = 0; t < end; t++) { /* whose past a beam has */
            int slot = 0;
            if (s->ancestry)
                while (s->ancestry[(row + t) * s->beams + slot] != 0.0f) slot++;
            places[beam][t] = t * place + slot * dim;
        }
        for (int t = end; t < padded; t++) places[beam][t] = places[beam][end - 1];
    }
    for (int head = 0; head < b->heads; head++)
        for (int beam = 0; beam < s->beams; beam++) {
            const float *keys = past + head / shared * group;
            attend(projected + beam * width + head * dim, keys, keys + groups * group, places[beam], NULL, end, dim,
                scores, mixed + ((size_t)(line * s->beams + beam) * b->heads + head) * dim);
        }
}

static void attend_to_source(const Block *b, const Step *s, int line, const float *queries, float *mixed)
{
    int dim = b->head_dim, length = s->source_length, padded = (length + 7) / 8 * 8, places[padded];
    float scores[padded];
    for (int t = 0; t < padded; t++) places[t] = (t < length ? t : length - 1) * dim;
    for (int head = 0; head < b->heads; head++)
        for (int row = line * s->beams; row < (line + 1) * s->beams; row++) {
            size_t start = ((size_t)line * b->heads + head) * length * dim, place = ((size_t)row * b->heads + head) * dim;
            attend(queries + place, s->keys + start, s->values + start, places,
                s->source_bias ? s->source_bias + (size_t)line * length : NULL, length, dim, scores, mixed + place);
        }
}

enum { RELU, GELU, GELU_TANH, SILU, TANH, SQUARED_RELU };

static void bend(float *h, int count, int kind)
{
    switch (kind) {
    case RELU:
        for (int i = 0; i < count; i++) h[i] = h[i] > 0.0f ? h[i] : 0.0f;
        break;
    case GELU:
        for (int i = 0; i < count; i++) h[i] *= 0.5f * (1.0f + error_function(h[i] * 0.707106781f));
        break;
    case GELU_TANH:
        for (int i = 0; i < count; i++)
            h[i] *= 0.5f * (1.0f + hyperbolic_tangent(0.797884561f * (h[i] + 0.044715f * h[i] * h[i] * h[i])));
        break;
    case SILU:
        for (int i = 0; i < count; i++) h[i] /= 1.0f + exponential(-h[i]);
        break;
    case TANH:
        for (int i = 0; i < count; i++) h[i] = hyperbolic_tangent(h[i]);
        break;
    case SQUARED_RELU:
        for (int i = 0; i < count; i++) h[i] = h[i] > 0.0f ? h[i] * h[i] : 0.0f;
        break;
    }
}

/* The hidden numbers of each row. Gated: the first half is bent and multiplies the second, and the result closes up. */
static void activate(const Block *b, int rows, float *hidden)
{
    int dim = b->hidden_dim;
    #pragma omp parallel for if ((size_t)rows * dim * 16 > WORTH_THREADS)
    for (int row = 0; row < rows; row++) {
        float *h = hidden + (size_t)row * dim * (b->gated ? 2 : 1);
        bend(h, dim, b->bend);
        if (b->gated)
            for (int i = 0; i < dim; i++) h[i] *= h[dim + i];
    }
    if (b->gated)
        for (int row = 1; row < rows; row++) memcpy(hidden + (size_t)row * dim, hidden + (size_t)row * 2 * dim, dim * sizeof(float));
}

static void feed_forward(const Block *b, int rows, float *x, float *narrow, float *wide)
{
    linear(rows, enter(b, rows, x, &b->feedforward_norm, narrow), &b->expand, wide);
    activate(b, rows, wide);
    linear(rows, wide, &b->contract, narrow);
    leave(b, rows, x, narrow, &b->feedforward_norm);
}

/* x, y: (batch · beams, model_dim). buffer: room for what `_hasten_step` in stepping.py adds up. */
void step(const Block *b, const Step *s, const float *x, float *buffer, float *y)
{
    int rows = s->batch * s->beams;
    float *narrow = buffer, *mixed = narrow + rows * b->model_dim, *wide = mixed + rows * b->heads * b->head_dim;
    size_t seen = (size_t)rows * b->heads * b->head_dim;

    linear(rows, enter(b, rows, x, &b->attention_norm, narrow), &b->in, wide);
    #pragma omp parallel for schedule(dynamic) if (16 * seen * (s->position + 8) > WORTH_THREADS)
    for (int line = 0; line < s->batch; line++) attend_to_past(b, s, line, wide, mixed);
    linear(rows, mixed, &b->out, narrow);
    memcpy(y, x, (size_t)rows * b->model_dim * sizeof(float));
    leave(b, rows, y, narrow, &b->attention_norm);

    if (s->keys) {
        linear(rows, enter(b, rows, y, &b->cross_norm, narrow), &b->query, wide);
        #pragma omp parallel for schedule(dynamic) if (16 * seen * (s->source_length + 8) > WORTH_THREADS)
        for (int line = 0; line < s->batch; line++) attend_to_source(b, s, line, wide, mixed);
        linear(rows, mixed, &b->cross_out, narrow);
        leave(b, rows, y, narrow, &b->cross_norm);
    }
    feed_forward(b, rows, y, narrow, wide);
}

/* What a block without a source does with rows of whole sequences, once attention has mixed them. */
static void finish_rows(const Block *b, int rows, const float *x, const float *mixed, float *buffer, float *y)
{
    size_t dim = b->model_dim;
    float *narrow = buffer, *wide = narrow + rows * dim;
    linear(rows, mixed, &b->out, narrow);
    memcpy(y, x, rows * dim * sizeof(float));
    leave(b, rows, y, narrow, &b->attention_norm);
    feed_forward(b, rows, y, narrow, wide);
}

/* buffer: model_dim + expand.outputs numbers for each row, or if they are many, for each of a chunk of each thread. */
void finish(const Block *b, int threads, int rows, const float *x, const float *mixed, float *buffer, float *y)
{
    size_t dim = b->model_dim, mixed_dim = (size_t)b->heads * b->head_dim, room = CHUNK * (dim + b->expand.outputs);
    if (rows < MANY) {
        finish_rows(b, rows, x, mixed, buffer, y);
        return;
    }
    #pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int row = 0; row < rows; row += CHUNK)
        finish_rows(b, rows - row < CHUNK ? rows - row : CHUNK, x + row * dim, mixed + row * mixed_dim,
            buffer + omp_get_thread_num() * room, y + row * dim);
}
