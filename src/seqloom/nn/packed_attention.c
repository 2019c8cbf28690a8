/* Attention within packed sequences, forward and backward, a sequence and a head at a time.
 *
 * Everything a head needs of a sequence of some dozens of tokens fits into a core's own cache. So nothing is laid out for
 * it in memory: no rectangles, no turned copies of queries and keys, no weights. The backward pass computes the weights
 * again, from the normaliser of each row. The mathematics is that of nn/multihead.py; packed_attention.py says when this
 * is used.
 *
 *   S = scale · Q Kᵀ     P = softmax(S)     O = P V
 *   ∂V = Pᵀ ∂O     ∂P = ∂O Vᵀ     ∂S = P ∘ (∂P − rowsum(P ∘ ∂P))     ∂Q = scale · ∂S K     ∂K = scale · ∂Sᵀ Q
 */

#include "drop.h"
#include <stdlib.h>
#include <string.h>

#define ROWS 6  /* of a product, whose sums stay in registers */
#define BAND 24 /* queries whose scores are worked on at a time, so that they stay in the nearest cache */

enum { ALL, PAST, FUTURE };

typedef struct {
    int sequences, heads, groups, dim, looks, normalised, longest_query, longest_key;
    const int64_t *query_starts, *query_counts, *key_starts, *key_counts;
    const float *query, *key, *value; /* rows of packed tokens; the heads of a row lie side by side */
    int64_t query_width, key_width;   /* numbers from one row to the next */
    const float *cosines, *sines;     /* of rotary positions: (longest, dim / 2), or NULL */
    float scale, rate;                /* of dropout */
    uint64_t seed;
} Attention;

/* What a thread works on: tokens in rows of `wide` numbers, scores in rows of `across`; both multiples of eight.
   The scores are those of a band of queries: `rows` of them from `first` on. */
typedef struct {
    int queries, keys, wide, across, first, rows;
    float *q, *k, *v, *k_flat, *v_flat, *scores, *out, *grad, *changes, *dq, *dk, *dv; /* flat: transposed */
} Tile;

static int round_up(int count) { return (count + 7) / 8 * 8; }

/* c = a b for a few rows of c and `eights` times eight of its columns. */
static inline __attribute__((always_inline)) void multiply(int rows, int eights, int inner, const float *a,
    size_t a_row, size_t a_inner, const float *b, size_t b_row, float *c, size_t c_row)
{
    Eight sums[ROWS][2];
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < eights; j++) sums[row][j] = *(Eight *)(c + row * c_row + 8 * j);
    for (int t = 0; t < inner; t++, a += a_inner, b += b_row) {
        Eight parts[2];
        for (int j = 0; j < eights; j++) parts[j] = *(const Eight *)(b + 8 * j);
        for (int row = 0; row < rows; row++)
            for (int j = 0; j < eights; j++) sums[row][j] += a[row * a_row] * parts[j];
    }
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < eights; j++) *(Eight *)(c + row * c_row + 8 * j) = sums[row][j];
}

/* c += a b; a is read with any strides, so that it may be a transpose; columns: a multiple of eight. */
static void add_product(int rows, int inner, int columns, const float *a, size_t a_row, size_t a_inner,
    const float *b, size_t b_row, float *c, size_t c_row)
{
    for (int at = 0; at < columns; at += 16) {
        int eights = columns - at >= 16 ? 2 : 1;
        for (int row = 0; row < rows; row += ROWS) {
            const float *from = a + row * a_row;
            float *to = c + row * c_row + at;
            int now = rows - row < ROWS ? rows - row : ROWS;
#define CASE(R, E) case 2 * R + E: multiply(R, E, inner, from, a_row, a_inner, b + at, b_row, to, c_row); break;
            switch (2 * now + eights) {
            CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1)
            CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2)
            }
#undef CASE
        }
    }
}

/* Which of `count` others the rows from `first` on have to do with. */
static void find_range(int looks, int first, int rows, int count, int *from, int *to)
{
    *from = looks == FUTURE && first < count ? first : 0;
    *to = looks == PAST && first + rows < count ? first + rows : count;
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* scores += x yᵀ for the pairs that meet; `flat` is yᵀ. */
static void add_scores(int looks, const Tile *w, const float *x, const float *flat, float *scores)
{
    int step = looks == ALL ? BAND : ROWS;
    for (int row = 0; row < w->rows; row += step) {
        int rows = smaller(w->rows - row, step), from, to;
        find_range(looks, w->first + row, rows, w->keys, &from, &to);
        from = from / 8 * 8, to = round_up(to);
        add_product(rows, w->wide, to - from, x + (w->first + row) * w->wide, w->wide, 1, flat + from, w->across,
            scores + row * w->across + from, w->across);
    }
}

/* out += weights · y: queries mix what stands at the keys. */
static void mix_keys(int looks, const Tile *w, const float *weights, const float *y, float *out)
{
    int step = looks == ALL ? BAND : ROWS;
    for (int row = 0; row < w->rows; row += step) {
        int rows = smaller(w->rows - row, step), from, to;
        find_range(looks, w->first + row, rows, w->keys, &from, &to);
        add_product(rows, to - from, w->wide, weights + row * w->across + from, w->across, 1, y + from * w->wide,
            w->wide, out + (w->first + row) * w->wide, w->wide);
    }
}

/* out += weightsᵀ · x: keys get from the queries that looked at them. */
static void mix_queries(int looks, const Tile *w, const float *weights, const float *x, float *out)
{
    int from, to;
    find_range(looks, w->first, w->rows, w->keys, &from, &to);
    add_product(to - from, w->rows, w->wide, weights + from, 1, w->across, x + w->first * w->wide, w->wide,
        out + from * w->wide, w->wide);
}

#ifdef __clang__
#define PICK(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(32)));
#define PICK(A, B, ...) __builtin_shuffle(A, B, (Places){__VA_ARGS__})
#endif

/* y = xᵀ, eight rows and columns at a time; y has zeros beyond the last row of x. */
static void transpose(int rows, const float *x, int wide, float *y, int across)
{
    for (int t = 0; t < across; t += 8)
        for (int i = 0; i < wide; i += 8) {
            Eight a[8], b[8];
            for (int j = 0; j < 8; j++) a[j] = t + j < rows ? *(const Eight *)(x + (t + j) * wide + i) : (Eight){0};
            for (int j = 0; j < 8; j += 2) {
                b[j] = PICK(a[j], a[j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
                b[j + 1] = PICK(a[j], a[j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
            }
            for (int j = 0; j < 8; j += 4)
                for (int k = 0; k < 2; k++) {
                    a[j + 2 * k] = PICK(b[j + k], b[j + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
                    a[j + 2 * k + 1] = PICK(b[j + k], b[j + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
                }
            for (int j = 0; j < 4; j++) {
                *(Eight *)(y + (i + j) * across + t) = PICK(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
                *(Eight *)(y + (i + j + 4) * across + t) = PICK(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
            }
        }
}

static inline void copy(const float *from, float *to, int count)
{
    int i = 0;
    for (; i + 8 <= count; i += 8) *(Eight *)(to + i) = *(const Eight *)(from + i);
    for (; i < count; i++) to[i] = from[i];
}

/* The vectors of a head, filled up with zeros. Those of the next lie beside them, and are asked for meanwhile. */
static void load(const float *from, int64_t width, int rows, int dim, float *to, int wide)
{
    for (int t = 0; t < rows; t++) {
        copy(from + t * width, to + t * wide, dim);
        for (int i = 0; i < dim; i += 16) __builtin_prefetch(from + t * width + dim + i);
        for (int i = dim; i < wide; i++) to[t * wide + i] = 0.0f;
    }
}

static void store(const float *from, int wide, int rows, int dim, float *to, int64_t width)
{
    for (int t = 0; t < rows; t++) copy(from + t * wide, to + t * width, dim);
}

static float invert_length(const float *x, int dim)
{
    float square = 0.0f;
    for (int i = 0; i < dim; i++) square += x[i] * x[i];
    return 1.0f / sqrtf(square / dim + 1.1920929e-7f);
}

/* Queries or keys are normalised, turned by their positions and scaled. */
static void turn(const Attention *a, float *x, int rows, int wide, float scale)
{
    int dim = a->dim, half = dim / 2;
    if (scale == 1.0f && !a->normalised && !a->cosines) return;
    for (int t = 0; t < rows; t++, x += wide) {
        float factor = a->normalised ? scale * invert_length(x, dim) : scale;
        for (int i = 0; i < dim; i++) x[i] *= factor;
        if (a->cosines)
            for (int i = 0; i < half; i++) {
                float c = a->cosines[t * half + i], s = a->sines[t * half + i], first = x[i], second = x[i + half];
                x[i] = first * c - second * s;
                x[i + half] = second * c + first * s;
            }
    }
}

/* The gradient by what was turned becomes the gradient by what it was before. */
static void turn_back(const Attention *a, float *grad, int rows, int wide, float scale, const float *raw, int64_t width)
{
    int dim = a->dim, half = dim / 2;
    for (int t = 0; t < rows; t++, grad += wide, raw += width) {
        if (a->cosines)
            for (int i = 0; i < half; i++) {
                float c = a->cosines[t * half + i], s = a->sines[t * half + i], first = grad[i], second = grad[i + half];
                grad[i] = first * c + second * s;
                grad[i + half] = second * c - first * s;
            }
        if (a->normalised) { /* y = r x, r = 1/√(mean x² + ε):  ∂x = r (∂y − x · r² mean(x ∂y)) */
            float r = invert_length(raw, dim), along = 0.0f;
            for (int i = 0; i < dim; i++) along += raw[i] * grad[i];
            along *= r * r / dim;
            for (int i = 0; i < dim; i++) grad[i] = scale * r * (grad[i] - raw[i] * along);
        } else
            for (int i = 0; i < dim; i++) grad[i] *= scale;
    }
}

/* Scores of a query become weights; normaliser: of the row, found now (`known` = 0) or known from the forward pass. */
static void weigh(const Attention *a, float *scores, int query, int keys, int across, float *normaliser, int known)
{
    int from, to;
    find_range(a->looks, query, 1, keys, &from, &to);
    for (int t = 0; t < from; t++) scores[t] = -INFINITY;
    for (int t = to; t < across; t++) scores[t] = -INFINITY;
    float subtracted = *normaliser;
    from = from / 8 * 8, to = round_up(to);
    if (!known) subtracted = find_largest(scores + from, to - from);
    for (int t = from; t < to; t++) scores[t] = scores[t] == -INFINITY ? 0.0f : exponential(scores[t] - subtracted);
    for (int t = 0; t < from; t++) scores[t] = 0.0f;
    for (int t = to; t < across; t++) scores[t] = 0.0f;
    if (!known) {
        float sum = 0.0f;
        for (int t = from; t < to; t++) sum += scores[t];
        *normaliser = subtracted + logf(sum);
        for (int t = from; t < to; t++) scores[t] *= 1.0f / sum;
    }
}

/* The tile of a sequence and a key-value head: keys and values; q and its scores are of one head of the group. */
static void load_keys(const Attention *a, Tile *w, int sequence, int group)
{
    int64_t start = a->key_starts[sequence] * a->key_width + (int64_t)group * a->dim;
    load(a->key + start, a->key_width, w->keys, a->dim, w->k, w->wide);
    turn(a, w->k, w->keys, w->wide, 1.0f);
    load(a->value + start, a->key_width, w->keys, a->dim, w->v, w->wide);
    transpose(w->keys, w->k, w->wide, w->k_flat, w->across);
}

static void load_queries(const Attention *a, Tile *w, int sequence, int head)
{
    const float *from = a->query + a->query_starts[sequence] * a->query_width + (int64_t)head * a->dim;
    load(from, a->query_width, w->queries, a->dim, w->q, w->wide);
    w->first = w->rows = 0;
    turn(a, w->q, w->queries, w->wide, a->scale);
}

/* The next band of queries, and its scores; 0 where there is none. */
static int open_band(const Attention *a, Tile *w)
{
    w->first += w->rows;
    w->rows = smaller(w->queries - w->first, BAND);
    if (!w->rows) return 0;
    memset(w->scores, 0, (size_t)w->rows * w->across * sizeof(float));
    add_scores(a->looks, w, w->q, w->k_flat, w->scores);
    return 1;
}

static Tile make_tile(const Attention *a)
{
    int wide = round_up(a->dim), across = round_up(a->longest_key);
    size_t queries = (size_t)a->longest_query * wide, keys = (size_t)across * wide;
    size_t band = (size_t)BAND * across;
    float *p = malloc((4 * queries + 6 * keys + 2 * band) * sizeof(float));
    Tile w = {.wide = wide};
    float **parts[] = {&w.q, &w.out, &w.grad, &w.dq, &w.k, &w.v, &w.k_flat, &w.v_flat, &w.dk, &w.dv, &w.scores, &w.changes};
    for (int i = 0; i < 12; i++) *parts[i] = p, p += i < 4 ? queries : i < 10 ? keys : band;
    return w;
}

static int open_tile(const Attention *a, Tile *w, int sequence)
{
    w->queries = a->query_counts[sequence], w->keys = a->key_counts[sequence];
    w->across = round_up(w->keys);
    return w->queries && w->keys;
}

/* out: (query rows, heads · dim); normalisers: (query rows, heads). */
void attend(const Attention *a, float *out, float *normalisers)
{
    int shared = a->heads / a->groups;
    int64_t width = (int64_t)a->heads * a->dim;
    #pragma omp parallel
    {
        Tile w = make_tile(a);
        #pragma omp for schedule(dynamic, a->groups)
        for (int n = 0; n < a->sequences * a->groups; n++) {
            int sequence = n / a->groups, group = n % a->groups;
            int64_t start = a->query_starts[sequence];
            int full = open_tile(a, &w, sequence);
            if (full) load_keys(a, &w, sequence, group);
            for (int head = group * shared; head < (group + 1) * shared; head++) {
                memset(w.out, 0, (size_t)w.queries * w.wide * sizeof(float));
                if (full) {
                    load_queries(a, &w, sequence, head);
                    while (open_band(a, &w)) {
                        for (int i = 0; i < w.rows; i++) {
                            int64_t row = (start + w.first + i) * a->heads + head;
                            float *weights = w.scores + i * w.across;
                            weigh(a, weights, w.first + i, w.keys, w.across, normalisers + row, 0);
                            if (a->rate > 0.0f) drop(a->rate, a->seed, row, w.across, weights, weights);
                        }
                        mix_keys(a->looks, &w, w.scores, w.v, w.out);
                    }
                }
                store(w.out, w.wide, w.queries, a->dim, out + start * width + (int64_t)head * a->dim, width);
            }
        }
        free(w.q);
    }
}

/* Gradients by query, key and value, laid out as those are, from that by what `attend` mixed. */
void differentiate(const Attention *a, const float *normalisers, const float *grad, float *query_grad, float *key_grad,
    float *value_grad)
{
    int shared = a->heads / a->groups, dim = a->dim;
    int64_t width = (int64_t)a->heads * dim;
    #pragma omp parallel
    {
        Tile w = make_tile(a);
        #pragma omp for schedule(dynamic, a->groups)
        for (int n = 0; n < a->sequences * a->groups; n++) {
            int sequence = n / a->groups, group = n % a->groups;
            int64_t start = a->query_starts[sequence];
            int64_t place = a->key_starts[sequence] * a->key_width + (int64_t)group * dim;
            int full = open_tile(a, &w, sequence);
            memset(w.dk, 0, (size_t)w.keys * w.wide * sizeof(float));
            memset(w.dv, 0, (size_t)w.keys * w.wide * sizeof(float));
            if (full) {
                load_keys(a, &w, sequence, group);
                transpose(w.keys, w.v, w.wide, w.v_flat, w.across);
            }
            for (int head = group * shared; head < (group + 1) * shared; head++) {
                int64_t at = start * width + (int64_t)head * dim, own = start * a->query_width + (int64_t)head * dim;
                memset(w.dq, 0, (size_t)w.queries * w.wide * sizeof(float));
                if (full) {
                    load_queries(a, &w, sequence, head);
                    load(grad + at, width, w.queries, dim, w.grad, w.wide);
                    while (open_band(a, &w)) {
                        memset(w.changes, 0, (size_t)w.rows * w.across * sizeof(float));
                        add_scores(a->looks, &w, w.grad, w.v_flat, w.changes);
                        for (int i = 0; i < w.rows; i++) {
                            int64_t row = (start + w.first + i) * a->heads + head;
                            float *weights = w.scores + i * w.across, *changes = w.changes + i * w.across, common = 0.0f;
                            float normaliser = normalisers[row];
                            weigh(a, weights, w.first + i, w.keys, w.across, &normaliser, 1);
                            if (a->rate > 0.0f) drop(a->rate, a->seed, row, w.across, changes, changes);
                            for (int t = 0; t < w.across; t++) common += weights[t] * changes[t];
                            for (int t = 0; t < w.across; t++) changes[t] = weights[t] * (changes[t] - common);
                            if (a->rate > 0.0f) drop(a->rate, a->seed, row, w.across, weights, weights);
                        }
                        mix_queries(a->looks, &w, w.scores, w.grad, w.dv);
                        mix_keys(a->looks, &w, w.changes, w.k, w.dq);
                        mix_queries(a->looks, &w, w.changes, w.q, w.dk);
                    }
                    turn_back(a, w.dq, w.queries, w.wide, a->scale, a->query + own, a->query_width);
                }
                store(w.dq, w.wide, w.queries, dim, query_grad + own, a->query_width);
            }
            turn_back(a, w.dk, w.keys, w.wide, 1.0f, a->key + place, a->key_width);
            store(w.dk, w.wide, w.keys, dim, key_grad + place, a->key_width);
            store(w.dv, w.wide, w.keys, dim, value_grad + place, a->key_width);
        }
        free(w.q);
    }
}
