/* One Transformer block for a few rows: a step of decoding, in one call.
 *
 * PyTorch needs longer to call the fifty operations of a block than a processor needs for one row of them. Here they are
 * plain loops over numbers that stay in the cache. The mathematics is that of nn/transformer.py, which says what it is;
 * few_rows.py compiles this file, lays the weights out for it, and decides when it is used.
 *
 *   x ──▶ (+ self-attention) ──▶ (+ cross-attention, if there is a source) ──▶ (+ feed-forward) ──▶
 */

#include <math.h>
#include <string.h>

#define WIDE 32 /* outputs computed side by side: as many as fit into the registers, for up to three rows */

typedef struct {
    const float *weight; /* for each WIDE outputs, for each input, their weights: read once, in this order */
    const float *bias;   /* or NULL */
    int inputs, outputs;
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

/* e^x as 2^n · 2^f with |f| ≤ 1/2 and Taylor's polynomial for 2^f: right to 2 in 10^7, and fit for vector registers. */
static inline float exponential(float x)
{
    float t = fmaxf(x, -87.0f) * 1.44269504f;
    t = fminf(t, 127.0f);
    float n = rintf(t), f = (t - n) * 0.693147181f;
    float p = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f + f * 0.00138888889f)))));
    union { int i; float f; } power = {((int)n + 127) << 23};
    return p * power.f;
}

static inline float hyperbolic_tangent(float x)
{
    return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
}

static inline __attribute__((always_inline)) void multiply(int rows, const float *x, const Linear *m, float *y)
{
    for (int first = 0; first < m->outputs; first += WIDE) {
        const float *weight = m->weight + (size_t)first * m->inputs;
        float sums[3][WIDE] = {{0}};
        for (int k = 0; k < m->inputs; k++, weight += WIDE)
            for (int row = 0; row < rows; row++)
                for (int j = 0; j < WIDE; j++)
                    sums[row][j] += x[row * m->inputs + k] * weight[j];
        int count = m->outputs - first < WIDE ? m->outputs - first : WIDE;
        for (int row = 0; row < rows; row++)
            for (int j = 0; j < count; j++)
                y[row * m->outputs + first + j] = sums[row][j] + (m->bias ? m->bias[first + j] : 0.0f);
    }
}

/* y = x Wᵀ + b */
void linear(int rows, const float *x, const Linear *m, float *y)
{
    while (rows) {
        int now = rows == 4 ? 2 : rows < 3 ? rows : 3;
        if (now == 1) multiply(1, x, m, y);
        else if (now == 2) multiply(2, x, m, y);
        else multiply(3, x, m, y);
        rows -= now, x += now * m->inputs, y += now * m->outputs;
    }
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
    for (int i = 0; i < rows * b->model_dim; i++) x[i] += added[i];
    if (b->post_norm) normalise(rows, b->model_dim, x, norm, x);
}

static void softmax(float *scores, int count)
{
    float most = -INFINITY, sum = 0.0f;
    for (int i = 0; i < count; i++) most = fmaxf(most, scores[i]);
    for (int i = 0; i < count; i++) scores[i] = scores[i] == -INFINITY ? 0.0f : exponential(scores[i] - most);
    for (int i = 0; i < count; i++) sum += scores[i];
    for (int i = 0; i < count; i++) scores[i] /= sum > 0.0f ? sum : 1.0f;
}

static float dot(const float *a, const float *b, int count)
{
    float sum = 0.0f;
    for (int i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
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

static void attend_to_past(const Block *b, const Step *s, float *projected, float *scores, float *mixed)
{
    int dim = b->head_dim, groups = b->key_value_heads, shared = b->heads / groups, end = s->position + 1;
    size_t beam = dim, place = beam * s->beams, group = place * s->room, line = group * 2 * groups;
    float scale = 1.0f / sqrtf(dim);
    for (int row = 0; row < s->batch * s->beams; row++) {
        float *query = projected + (size_t)row * (b->heads + 2 * groups) * dim, *key = query + b->heads * dim;
        float *own = s->past + row / s->beams * line + s->position * place + row % s->beams * beam;
        if (b->frequencies)
            for (int head = 0; head < b->heads + groups; head++) turn(query + head * dim, b->frequencies, dim, s->position);
        for (int head = 0; head < 2 * groups; head++) memcpy(own + head * group, key + head * dim, dim * sizeof(float));
    }
    for (int row = 0; row < s->batch * s->beams; row++) {
        const float *query = projected + (size_t)row * (b->heads + 2 * groups) * dim;
        const float *ancestry = s->ancestry ? s->ancestry + (size_t)row * end * s->beams : NULL;
        for (int head = 0; head < b->heads; head++) {
            const float *keys = s->past + row / s->beams * line + head / shared * group, *values = keys + groups * group;
            float *out = mixed + ((size_t)row * b->heads + head) * dim;
            memset(out, 0, dim * sizeof(float));
            for (int t = 0; t < end; t++) {
                int slot = 0;
                while (ancestry && ancestry[t * s->beams + slot] != 0.0f) slot++;
                scores[t] = scale * dot(query + head * dim, keys + t * place + slot * beam, dim);
            }
            softmax(scores, end);
            for (int t = 0; t < end; t++) {
                int slot = 0;
                while (ancestry && ancestry[t * s->beams + slot] != 0.0f) slot++;
                const float *value = values + t * place + slot * beam;
                for (int i = 0; i < dim; i++) out[i] += scores[t] * value[i];
            }
        }
    }
}

static void attend_to_source(const Block *b, const Step *s, const float *queries, float *scores, float *mixed)
{
    int dim = b->head_dim, length = s->source_length;
    float scale = 1.0f / sqrtf(dim);
    for (int row = 0; row < s->batch * s->beams; row++) {
        int line = row / s->beams;
        for (int head = 0; head < b->heads; head++) {
            size_t start = ((size_t)line * b->heads + head) * length * dim;
            const float *query = queries + ((size_t)row * b->heads + head) * dim;
            float *out = mixed + ((size_t)row * b->heads + head) * dim;
            memset(out, 0, dim * sizeof(float));
            for (int t = 0; t < length; t++) {
                scores[t] = scale * dot(query, s->keys + start + t * dim, dim);
                if (s->source_bias) scores[t] += s->source_bias[line * length + t];
            }
            softmax(scores, length);
            for (int t = 0; t < length; t++)
                for (int i = 0; i < dim; i++) out[i] += scores[t] * s->values[start + t * dim + i];
        }
    }
}

enum { RELU, GELU, GELU_TANH, SILU, TANH, SQUARED_RELU };

static void bend(float *h, int count, int kind)
{
    switch (kind) {
    case RELU:
        for (int i = 0; i < count; i++) h[i] = fmaxf(h[i], 0.0f);
        break;
    case GELU:
        for (int i = 0; i < count; i++) h[i] *= 0.5f * (1.0f + erff(h[i] * 0.707106781f));
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
        for (int i = 0; i < count; i++) h[i] = fmaxf(h[i], 0.0f) * fmaxf(h[i], 0.0f);
        break;
    }
}

/* Each row: the first half of its hidden numbers is bent and multiplies the second; the result closes up. */
static void gate(int rows, float *h, int dim, int kind)
{
    for (int row = 0; row < rows; row++) {
        float *gate = h + (size_t)row * 2 * dim;
        bend(gate, dim, kind);
        for (int i = 0; i < dim; i++) h[(size_t)row * dim + i] = gate[i] * gate[dim + i];
    }
}

/* x: (batch · beams, model_dim), changed in place. buffer: room for what `hasten_block` in few_rows.py adds up. */
void step(const Block *b, const Step *s, float *x, float *buffer)
{
    int rows = s->batch * s->beams;
    float *narrow = buffer, *mixed = narrow + rows * b->model_dim, *scores = mixed + rows * b->heads * b->head_dim;
    float *wide = scores + (s->position + 1 > s->source_length ? s->position + 1 : s->source_length);

    linear(rows, enter(b, rows, x, &b->attention_norm, narrow), &b->in, wide);
    attend_to_past(b, s, wide, scores, mixed);
    linear(rows, mixed, &b->out, narrow);
    leave(b, rows, x, narrow, &b->attention_norm);

    if (s->keys) {
        linear(rows, enter(b, rows, x, &b->cross_norm, narrow), &b->query, wide);
        attend_to_source(b, s, wide, scores, mixed);
        linear(rows, mixed, &b->cross_out, narrow);
        leave(b, rows, x, narrow, &b->cross_norm);
    }

    linear(rows, enter(b, rows, x, &b->feedforward_norm, narrow), &b->expand, wide);
    if (b->gated) gate(rows, wide, b->hidden_dim, b->bend);
    else bend(wide, rows * b->hidden_dim, b->bend);
    linear(rows, wide, &b->contract, narrow);
    leave(b, rows, x, narrow, &b->feedforward_norm);
}
