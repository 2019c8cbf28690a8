/* Attention within packed sequences, forward and backward, a sequence and a head at a time.
 *
 * Everything a head needs of a sequence of some dozens of tokens fits into a core's own cache. So nothing is laid out
 * for it in memory: no rectangles, no rotated copies of queries and keys, no weights. The backward pass computes the
 * weights again, from the normaliser of each row. The mathematics is that of nn/multihead.py.
 *
 *   S = scale · Q Kᵀ     P = softmax(S)     O = P V
 *   ∂V = Pᵀ ∂O     ∂P = ∂O Vᵀ     ∂S = P ∘ (∂P − rowsum(P ∘ ∂P))     ∂Q = scale · ∂S K     ∂K = scale · ∂Sᵀ Q
 */

#include "bfloat16.h"

/* What a thread works on: tokens in rows of `wide` numbers, scores in rows of `across`; both multiples of eight.
   The scores are those of a band of queries: `rows` of them from `first` on, `band` at most. */
typedef struct {
    size_t queries, keys, wide, across, first, rows, band;
    float *q, *k, *v, *k_flat, *v_flat, *scores, *grad, *out, *changes, *dq, *dk, *dv; /* flat: transposed */
} Tile;

/* c += a b; a is read with any strides, so that it may be a transpose; columns: a multiple of eight. */
INLINE void add_tile(int rows, int eights, size_t inner, const float *a, size_t a_row, size_t a_inner, const float *b,
    size_t b_row, float *c, size_t c_row)
{
    Eight sums[ROWS][8];
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < eights; j++) sums[row][j] = load(c + (size_t)row * c_row + 8 * j);
    multiply(rows, eights, inner, a, a_row, a_inner, b, b_row, 0, b, 0, sums);
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < eights; j++) store(c + (size_t)row * c_row + 8 * j, sums[row][j]);
}

static void add_product(size_t rows, size_t inner, size_t columns, const float *a, size_t a_row, size_t a_inner,
    const float *b, size_t b_row, float *c, size_t c_row)
{
    for (size_t at = 0; at < columns; at += 16) {
        int eights = columns - at >= 16 ? 2 : 1;
        for (size_t row = 0; row < rows; row += ROWS) {
            const float *from = a + row * a_row;
            float *to = c + row * c_row + at;
            int now = (int)least(rows - row, ROWS);
#define CASE(R, E) case 2 * R + E: add_tile(R, E, inner, from, a_row, a_inner, b + at, b_row, to, c_row); break;
            switch (2 * now + eights) {
            CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1)
            CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2)
            }
#undef CASE
        }
    }
}

/* Which of `count` keys the queries from `first` on see. */
static void find_range(int sees, size_t first, size_t rows, size_t count, size_t *from, size_t *to)
{
    *from = sees == FUTURE ? least(first, count) : 0;
    *to = sees == PAST ? least(first + rows, count) : count;
}

/* scores += x yᵀ for the pairs that meet; `flat` is yᵀ. */
static void add_scores(int sees, const Tile *w, const float *x, const float *flat, float *scores)
{
    size_t step = sees == EVERYTHING ? BAND : ROWS;
    for (size_t row = 0; row < w->rows; row += step) {
        size_t rows = least(w->rows - row, step), from, to;
        find_range(sees, w->first + row, rows, w->keys, &from, &to);
        from = from / 8 * 8, to = round_up(to);
        add_product(rows, w->wide, to - from, x + (w->first + row) * w->wide, w->wide, 1, flat + from, w->across,
            scores + row * w->across + from, w->across);
    }
}

/* out += weights · y: queries mix what stands at the keys. */
static void mix_keys(int sees, const Tile *w, const float *weights, const float *y, float *out)
{
    size_t step = sees == EVERYTHING ? BAND : ROWS;
    for (size_t row = 0; row < w->rows; row += step) {
        size_t rows = least(w->rows - row, step), from, to;
        find_range(sees, w->first + row, rows, w->keys, &from, &to);
        add_product(rows, to - from, w->wide, weights + row * w->across + from, w->across, 1, y + from * w->wide,
            w->wide, out + (w->first + row) * w->wide, w->wide);
    }
}

/* out += weightsᵀ · x: keys get from the queries that saw them. */
static void mix_queries(int sees, const Tile *w, const float *weights, const float *x, float *out)
{
    size_t from, to;
    find_range(sees, w->first, w->rows, w->keys, &from, &to);
    add_product(to - from, w->rows, w->wide, weights + from, 1, w->across, x + w->first * w->wide, w->wide,
        out + from * w->wide, w->wide);
}

/* y = xᵀ, eight rows and columns at a time; y has zeros beyond the last row of x. */
static void transpose(size_t rows, const float *x, size_t wide, float *y, size_t across)
{
    for (size_t t = 0; t < across; t += 8)
        for (size_t i = 0; i < wide; i += 8) {
            Eight a[8], b[8];
            for (size_t j = 0; j < 8; j++) a[j] = t + j < rows ? load(x + (t + j) * wide + i) : (Eight){0};
            for (int j = 0; j < 8; j += 2) {
                b[j] = PICK(a[j], a[j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
                b[j + 1] = PICK(a[j], a[j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
            }
            for (int j = 0; j < 8; j += 4)
                for (int k = 0; k < 2; k++) {
                    a[j + 2 * k] = PICK(b[j + k], b[j + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
                    a[j + 2 * k + 1] = PICK(b[j + k], b[j + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
                }
            for (size_t j = 0; j < 4; j++) {
                store(y + (i + j) * across + t, PICK(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11));
                store(y + (i + j + 4) * across + t, PICK(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15));
            }
        }
}

static inline void copy(const float *from, float *to, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) store(to + i, load(from + i));
    for (; i < count; i++) to[i] = from[i];
}

/* The vectors of a head, filled up with zeros. Those of the next lie beside them, and are asked for meanwhile. */
static void load_rows(int precision, const void *x, int64_t place, int64_t width, size_t rows, size_t dim, float *to,
    size_t wide)
{
    for (size_t t = 0; t < rows; t++, place += width, to += wide) {
        const void *from = find(precision, x, place);
        if (precision == BFLOAT16) widen_row(dim, from, to);
        else copy(from, to, dim);
        for (size_t i = 0; i < dim; i += 16) __builtin_prefetch(find(precision, from, (int64_t)(dim + i)));
        for (size_t i = dim; i < wide; i++) to[i] = 0.0f;
    }
}

static void store_rows(int precision, const float *from, size_t wide, size_t rows, size_t dim, void *y, int64_t place,
    int64_t width)
{
    for (size_t t = 0; t < rows; t++, from += wide, place += width) {
        void *to = find(precision, y, place);
        if (precision == BFLOAT16) shorten_row(dim, from, to);
        else copy(from, to, dim);
    }
}

/* Queries or keys are normalised, scaled and rotated by their positions. */
static void prepare(const Attention *a, float *x, size_t rows, size_t wide, float scale)
{
    size_t dim = (size_t)a->dim, half = dim / 2;
    if (scale == 1.0f && !a->normalised && !a->cosines) return;
    for (size_t t = 0; t < rows; t++, x += wide) {
        float factor = a->normalised ? scale * invert_length(x, dim) : scale;
        for (size_t i = 0; i < dim; i++) x[i] *= factor;
        if (a->cosines) rotate(x, a->cosines + t * half, a->sines + t * half, half, 1.0f);
    }
}

/* The gradient by what was prepared becomes the gradient by what it was before. */
static void differentiate_prepared(const Attention *a, float *grad, size_t rows, size_t wide, float scale,
    const void *x, int64_t place, int64_t width, float *room)
{
    size_t dim = (size_t)a->dim, half = dim / 2;
    for (size_t t = 0; t < rows; t++, grad += wide, place += width) {
        if (a->cosines) rotate(grad, a->cosines + t * half, a->sines + t * half, half, -1.0f);
        if (a->normalised) { /* y = r x, r = 1/√(mean x² + ε):  ∂x = r (∂y − x · r² mean(x ∂y)) */
            const float *raw = read_row(a->precision, find(a->precision, x, place), dim, room);
            float r = invert_length(raw, dim), along = dot(raw, grad, dim) * r * r / (float)dim;
            for (size_t i = 0; i < dim; i++) grad[i] = scale * r * (grad[i] - raw[i] * along);
        } else
            for (size_t i = 0; i < dim; i++) grad[i] *= scale;
    }
}

/* Which keys a query sees, and from where on its weights are worked on: sums begin at a multiple of their lanes. */
typedef struct { size_t start, from, to; } Seen;

static Seen find_seen(const Attention *a, const Tile *w, size_t query)
{
    Seen seen;
    find_range(a->sees, query, 1, w->keys, &seen.from, &seen.to);
    seen.start = seen.from / SPREAD * SPREAD;
    return seen;
}

static void clear_unseen(float *x, Seen seen, size_t count)
{
    memset(x, 0, seen.from * sizeof(float));
    memset(x + seen.to, 0, (count - seen.to) * sizeof(float));
}

/* Scores of a query become weights, and the row's normaliser is found. A query that sees nothing has no weights. */
static void weigh(const Attention *a, const Tile *w, float *scores, size_t query, float *normaliser)
{
    Seen seen = find_seen(a, w, query);
    float *own = scores + seen.start, most = find_largest(scores + seen.from, seen.to - seen.from);
    for (size_t t = seen.start; t < seen.from; t++) scores[t] = -INFINITY;
    float shift = most == -INFINITY ? 0.0f : most, total = sum_exponentials(own, seen.to - seen.start, shift, own);
    float share = total == 0.0f ? 0.0f : 1.0f / total;
    *normaliser = total == 0.0f ? INFINITY : shift + logf(total);
    for (size_t t = seen.from; t < seen.to; t++) scores[t] *= share;
    clear_unseen(scores, seen, w->across);
}

/* The same weights again, and the gradient by them becomes the gradient by the scores. */
static void differentiate_weights(const Attention *a, const Tile *w, float *scores, float *changes, size_t query,
    float normaliser, int64_t row)
{
    Seen seen = find_seen(a, w, query);
    clear_unseen(changes, seen, w->across);
    for (size_t t = seen.from; t < seen.to; t++) scores[t] = exponential(scores[t] - normaliser);
    clear_unseen(scores, seen, w->across);
    if (a->rate > 0.0f) drop(a->rate, a->seed, row, seen.to, changes, changes);
    float common = dot(scores + seen.start, changes + seen.start, seen.to - seen.start);
    for (size_t t = seen.from; t < seen.to; t++) changes[t] = scores[t] * (changes[t] - common);
    if (a->rate > 0.0f) drop(a->rate, a->seed, row, seen.to, scores, scores);
}

/* The tile of a sequence and a key-value head: keys and values; q and its scores are of one head of the group. */
static void load_keys(const Attention *a, Tile *w, size_t sequence, size_t group)
{
    size_t dim = (size_t)a->dim;
    int64_t start = a->key_starts[sequence] * a->key_width + (int64_t)(group * dim);
    load_rows(a->precision, a->key, start, a->key_width, w->keys, dim, w->k, w->wide);
    prepare(a, w->k, w->keys, w->wide, 1.0f);
    load_rows(a->precision, a->value, start, a->key_width, w->keys, dim, w->v, w->wide);
    transpose(w->keys, w->k, w->wide, w->k_flat, w->across);
}

/* Whether all are numbers: each times zero is zero then. count: a multiple of eight. */
static int is_finite(const float *x, size_t count)
{
    Eight zeros[4] = {{0}};
    size_t i = 0;
    for (; i + SPREAD <= count; i += SPREAD)
        for (int j = 0; j < 4; j++) zeros[j] += 0.0f * load(x + i + 8 * j);
    for (; i < count; i += 8) zeros[0] += 0.0f * load(x + i);
    return add_lanes(zeros) == 0.0f;
}

/* The queries of a head; for the backward pass also the gradient. Within a band, weights of zero stand for pairs that
   do not meet. Zero times what is no number is none: where there is such, a band is one query, and pairs that do not
   meet are not multiplied. */
static void load_queries(const Attention *a, Tile *w, size_t sequence, size_t head, const void *grad)
{
    size_t dim = (size_t)a->dim, queries = w->queries * w->wide, keys = w->keys * w->wide;
    int64_t width = (int64_t)a->heads * a->dim, start = a->query_starts[sequence], column = (int64_t)(head * dim);
    load_rows(a->precision, a->query, start * a->query_width + column, a->query_width, w->queries, dim, w->q, w->wide);
    prepare(a, w->q, w->queries, w->wide, a->scale);
    if (grad) load_rows(a->precision, grad, start * width + column, width, w->queries, dim, w->grad, w->wide);
    w->first = w->rows = 0;
    w->band = BAND;
    if (a->sees == EVERYTHING) return;
    int finite = grad ? is_finite(w->k, keys) && is_finite(w->q, queries) && is_finite(w->grad, queries)
                      : is_finite(w->v, keys);
    if (!finite) w->band = 1;
}

/* The next band of queries, and its scores; 0 where there is none. */
static int open_band(const Attention *a, Tile *w)
{
    w->first += w->rows;
    w->rows = least(w->queries - w->first, w->band);
    if (!w->rows) return 0;
    memset(w->scores, 0, w->rows * w->across * sizeof(float));
    add_scores(a->sees, w, w->q, w->k_flat, w->scores);
    return 1;
}

/* Numbers that a tile takes. */
static size_t measure_tile(const Attention *a)
{
    size_t wide = round_up((size_t)a->dim), across = round_up((size_t)a->longest_key);
    return 4 * (size_t)a->longest_query * wide + 6 * across * wide + 2 * BAND * across;
}

static Tile make_tile(const Attention *a, float *p)
{
    size_t wide = round_up((size_t)a->dim), across = round_up((size_t)a->longest_key);
    size_t queries = (size_t)a->longest_query * wide, keys = across * wide, band = BAND * across;
    Tile w = {.wide = wide};
    float **parts[] = {
        &w.q, &w.out, &w.grad, &w.dq, &w.k, &w.v, &w.k_flat, &w.v_flat, &w.dk, &w.dv, &w.scores, &w.changes};
    for (int i = 0; i < 12; i++) *parts[i] = p, p += i < 4 ? queries : i < 10 ? keys : band;
    return w;
}

static int open_tile(const Attention *a, Tile *w, size_t sequence)
{
    w->queries = (size_t)a->query_counts[sequence], w->keys = (size_t)a->key_counts[sequence];
    w->across = round_up(w->keys);
    return w->queries && w->keys;
}

/* out: (query rows, heads · dim), as query, key and value of `precision`; normalisers: (query rows, heads). */
API int KERNEL(attend)(int threads, const Attention *a, void *out, float *normalisers)
{
    size_t groups = (size_t)a->groups, shared = (size_t)a->heads / groups, size = measure_tile(a), dim = (size_t)a->dim;
    int64_t width = (int64_t)a->heads * a->dim, pairs = (int64_t)a->sequences * a->groups;
    float *room = reserve((size_t)threads * size, sizeof(float));
    if (!room) return NO_MEMORY;
    #pragma omp parallel for schedule(dynamic, a->groups) num_threads(threads) if (threads > 1 && pairs > 1)
    for (int64_t n = 0; n < pairs; n++) {
        Tile w = make_tile(a, room + (size_t)omp_get_thread_num() * size);
        size_t sequence = (size_t)n / groups, group = (size_t)n % groups;
        int64_t start = a->query_starts[sequence];
        int full = open_tile(a, &w, sequence);
        if (full) load_keys(a, &w, sequence, group);
        for (size_t head = group * shared; head < (group + 1) * shared; head++) {
            memset(w.out, 0, w.queries * w.wide * sizeof(float));
            if (full) {
                load_queries(a, &w, sequence, head, NULL);
                while (open_band(a, &w)) {
                    for (size_t i = 0; i < w.rows; i++) {
                        int64_t row = (start + (int64_t)(w.first + i)) * a->heads + (int64_t)head;
                        float *weights = w.scores + i * w.across;
                        weigh(a, &w, weights, w.first + i, normalisers + row);
                        if (a->rate > 0.0f) drop(a->rate, a->seed, row, w.across, weights, weights);
                    }
                    mix_keys(a->sees, &w, w.scores, w.v, w.out);
                }
            }
            store_rows(a->precision, w.out, w.wide, w.queries, dim, out, start * width + (int64_t)(head * dim), width);
        }
    }
    free(room);
    return OK;
}

/* Gradients by query, key and value, laid out as those are, from that by what `attend` mixed. */
API int KERNEL(differentiate_attention)(int threads, const Attention *a, const float *normalisers, const void *grad,
    void *query_grad, void *key_grad, void *value_grad)
{
    size_t groups = (size_t)a->groups, shared = (size_t)a->heads / groups, size = measure_tile(a), dim = (size_t)a->dim;
    int64_t pairs = (int64_t)a->sequences * a->groups;
    float *room = reserve((size_t)threads * size, sizeof(float));
    if (!room) return NO_MEMORY;
    #pragma omp parallel for schedule(dynamic, a->groups) num_threads(threads) if (threads > 1 && pairs > 1)
    for (int64_t n = 0; n < pairs; n++) {
        Tile w = make_tile(a, room + (size_t)omp_get_thread_num() * size);
        size_t sequence = (size_t)n / groups, group = (size_t)n % groups;
        int64_t start = a->query_starts[sequence];
        int64_t place = a->key_starts[sequence] * a->key_width + (int64_t)(group * dim);
        int full = open_tile(a, &w, sequence);
        memset(w.dk, 0, w.keys * w.wide * sizeof(float));
        memset(w.dv, 0, w.keys * w.wide * sizeof(float));
        if (full) {
            load_keys(a, &w, sequence, group);
            transpose(w.keys, w.v, w.wide, w.v_flat, w.across);
        }
        for (size_t head = group * shared; head < (group + 1) * shared; head++) {
            int64_t own = start * a->query_width + (int64_t)(head * dim);
            memset(w.dq, 0, w.queries * w.wide * sizeof(float));
            if (full) {
                load_queries(a, &w, sequence, head, grad);
                while (open_band(a, &w)) {
                    memset(w.changes, 0, w.rows * w.across * sizeof(float));
                    add_scores(a->sees, &w, w.grad, w.v_flat, w.changes);
                    for (size_t i = 0; i < w.rows; i++) {
                        int64_t row = (start + (int64_t)(w.first + i)) * a->heads + (int64_t)head;
                        differentiate_weights(a, &w, w.scores + i * w.across, w.changes + i * w.across, w.first + i,
                            normalisers[row], row);
                    }
                    mix_queries(a->sees, &w, w.scores, w.grad, w.dv);
                    mix_keys(a->sees, &w, w.changes, w.k, w.dq);
                    mix_queries(a->sees, &w, w.changes, w.q, w.dk);
                }
                differentiate_prepared(a, w.dq, w.queries, w.wide, a->scale, a->query, own, a->query_width, w.out);
            }
            store_rows(a->precision, w.dq, w.wide, w.queries, dim, query_grad, own, a->query_width);
        }
        differentiate_prepared(a, w.dk, w.keys, w.wide, 1.0f, a->key, place, a->key_width, w.out);
        store_rows(a->precision, w.dk, w.wide, w.keys, dim, key_grad, place, a->key_width);
        store_rows(a->precision, w.dv, w.wide, w.keys, dim, value_grad, place, a->key_width);
    }
    free(room);
    return OK;
}
