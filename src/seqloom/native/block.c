/* A Transformer block's step of decoding, in one call; and of whole sequences, all that follows their attention.
 *
 * PyTorch needs longer to call the fifty operations of a block than a processor needs for one row of them; its
 * products of some dozens of rows reach half of what the processor can do, because the weights are laid out anew in
 * each; and of many rows, it brings all to memory after each operation. Here the weights are laid out once, and rows
 * stay in the cache. The mathematics is that of nn/transformer.py, which says what it is.
 *
 *   x ──▶ (+ self-attention) ──▶ (+ cross-attention, if there is a source) ──▶ (+ feed-forward) ──▶
 */

#include "kernels.h"

/* ---- the residual stream ---- */

/* What rows read of the residual stream, and what becomes of the stream when it has been written to. */
static const float *enter(const Block *b, int threads, size_t rows, const float *x, const Norm *norm, float *buffer)
{
    size_t dim = (size_t)b->model_dim;
    if (b->post_norm) return x;
    if (threads == 1 || rows * dim * 64 <= WORTH_THREADS) {
        for (size_t row = 0; row < rows; row++) normalise_row(dim, x + row * dim, norm, buffer + row * dim);
        return buffer;
    }
    #pragma omp parallel for num_threads(threads)
    for (size_t row = 0; row < rows; row++) normalise_row(dim, x + row * dim, norm, buffer + row * dim);
    return buffer;
}

static void add_row(const Block *b, float *x, const float *added, const Norm *norm)
{
    size_t dim = (size_t)b->model_dim;
    for (size_t i = 0; i < dim; i++) x[i] += added[i];
    if (b->post_norm) normalise_row(dim, x, norm, x);
}

static void leave(const Block *b, int threads, size_t rows, float *x, const float *added, const Norm *norm)
{
    size_t dim = (size_t)b->model_dim;
    if (threads == 1 || rows * dim * 64 <= WORTH_THREADS) {
        for (size_t row = 0; row < rows; row++) add_row(b, x + row * dim, added + row * dim, norm);
        return;
    }
    #pragma omp parallel for num_threads(threads)
    for (size_t row = 0; row < rows; row++) add_row(b, x + row * dim, added + row * dim, norm);
}

/* ---- attention of one query ---- */

/* Eight sums of eight numbers each, side by side. */
static inline Eight add_up(const Eight *x)
{
    Eight pairs[4], fours[2];
    for (int i = 0; i < 4; i++)
        pairs[i] = PICK(x[2 * i], x[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14)
            + PICK(x[2 * i], x[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    for (int i = 0; i < 2; i++)
        fours[i] = PICK(pairs[2 * i], pairs[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13)
            + PICK(pairs[2 * i], pairs[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    return PICK(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11) + PICK(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

/* out = Σ_t softmax_t(scale · query · key_t + bias_t) value_t over `count` places, or zeros if there is none.
   places: where keys and values stand, filled up to a multiple of eight; bias and scores have as many numbers.
   Afterwards, the weights are the scores times what is returned. */
static float attend(const float *query, const float *keys, const float *values, const size_t *places, const float *bias,
    size_t count, size_t dim, float *scores, float *out)
{
    float scale = 1.0f / sqrtf((float)dim);
    for (size_t t = 0; t < count; t += 8) {
        Eight sums[8] = {{0}};
        size_t i = 0;
        for (int j = 0; j < 8; j++)
            for (size_t line = 0; line < dim; line += 16) __builtin_prefetch(values + places[t + j] + line);
        for (; i + 8 <= dim; i += 8)
            for (int j = 0; j < 8; j++) sums[j] += load(query + i) * load(keys + places[t + j] + i);
        for (; i < dim; i++)
            for (int j = 0; j < 8; j++) sums[j][0] += query[i] * keys[places[t + j] + i];
        store(scores + t, scale * add_up(sums));
    }
    if (bias)
        for (size_t t = 0; t < count; t++) scores[t] += bias[t];
    float most = find_largest(scores, count), shift = most == -INFINITY ? 0.0f : most;
    float total = sum_exponentials(scores, count, shift, scores);
    float share = total == 0.0f ? 0.0f : 1.0f / total; /* NaN stays NaN */
    size_t i = 0;
    for (; i + 32 <= dim; i += 32) {
        Eight sums[4] = {{0}};
        for (size_t t = 0; t < count; t++)
            for (int j = 0; j < 4; j++) sums[j] += scores[t] * load(values + places[t] + i + 8 * j);
        for (int j = 0; j < 4; j++) store(out + i + 8 * j, share * sums[j]);
    }
    for (; i + 8 <= dim; i += 8) {
        Eight mean = {0};
        for (size_t t = 0; t < count; t++) mean += scores[t] * load(values + places[t] + i);
        store(out + i, share * mean);
    }
    for (; i < dim; i++) {
        float mean = 0.0f;
        for (size_t t = 0; t < count; t++) mean += scores[t] * values[places[t] + i];
        out[i] = share * mean;
    }
    return share;
}

/* What a thread works with. */
typedef struct {
    size_t *places; /* (beams, longest) */
    float *scores, *bias, *cosines, *sines;
    size_t longest;
} Work;

static void fill_up(size_t *places, size_t count)
{
    for (size_t t = count; t < round_up(count); t++) places[t] = places[count - 1];
}

/* A query or key is normalised, and rotated by its position. */
static void encode_head(const Block *b, float *x, const Work *w)
{
    size_t dim = (size_t)b->head_dim;
    float factor = b->normalised ? invert_length(x, dim) : 1.0f;
    for (size_t i = 0; b->normalised && i < dim; i++) x[i] *= factor;
    if (b->frequencies) rotate(x, w->cosines, w->sines, dim / 2, 1.0f);
}

/* The new tokens of a line get their places in the cache, for some key-value heads. */
static void keep_line(const Block *b, const Step *s, size_t line, size_t first, size_t end, float *projected, float *cache,
    const Work *w)
{
    size_t dim = (size_t)b->head_dim, heads = (size_t)b->heads, groups = (size_t)b->kv_heads, shared = heads / groups;
    size_t beams = (size_t)s->beams, tokens = (size_t)s->tokens, width = (heads + 2 * groups) * dim;
    size_t group_size = (size_t)s->room * beams * dim;
    for (size_t t = 0; t < tokens; t++) {
        size_t position = (size_t)s->positions[line] + t;
        for (size_t i = 0; b->frequencies && i < dim / 2; i++) {
            float angle = (float)position * b->frequencies[i];
            w->cosines[i] = cosf(angle), w->sines[i] = sinf(angle);
        }
        for (size_t beam = 0; beam < beams; beam++) {
            float *row = projected + (beam * tokens + t) * width, *own = cache + (position * beams + beam) * dim;
            for (size_t head = first * shared; head < end * shared; head++) encode_head(b, row + head * dim, w);
            for (size_t group = first; group < end; group++) encode_head(b, row + (heads + group) * dim, w);
            for (size_t group = first; group < end; group++) {
                const float *key = row + (heads + group) * dim;
                memcpy(own + group * group_size, key, dim * sizeof(float));
                memcpy(own + (groups + group) * group_size, key + groups * dim, dim * sizeof(float));
            }
        }
    }
}

/* A line's past, for some key-value heads, the heads that share each, each beam and each of its new tokens. */
static void attend_to_past(const Block *b, const Step *s, size_t line, size_t first, size_t end, float *projected,
    float *mixed, const Work *w)
{
    size_t dim = (size_t)b->head_dim, heads = (size_t)b->heads, groups = (size_t)b->kv_heads, shared = heads / groups;
    size_t beams = (size_t)s->beams, tokens = (size_t)s->tokens, room = (size_t)s->room;
    size_t position = (size_t)s->positions[line], width = (heads + 2 * groups) * dim, group_size = room * beams * dim;
    float *cache = s->cache + line * 2 * groups * group_size;
    projected += line * beams * tokens * width;
    keep_line(b, s, line, first, end, projected, cache, w);
    for (size_t beam = 0; beam < beams; beam++) {
        const int32_t *slots = s->slots ? s->slots + (line * beams + beam) * room : NULL;
        size_t *places = w->places + beam * w->longest;
        for (size_t t = 0; t < position + tokens; t++)
            places[t] = (t * beams + (t >= position ? beam : slots ? (size_t)slots[t] : 0)) * dim;
        fill_up(places, position + tokens);
    }
    for (size_t head = first * shared; head < end * shared; head++)
        for (size_t n = 0; n < beams * tokens; n++) {
            const float *keys = cache + head / shared * group_size, *values = keys + groups * group_size;
            attend(projected + n * width + head * dim, keys, values, w->places + n / tokens * w->longest, NULL,
                position + n % tokens + 1, dim, w->scores, mixed + ((line * beams * tokens + n) * heads + head) * dim);
        }
}

/* A line's source, for some heads and each row. Padding is left out, wherever it stands. */
static void attend_to_source(const Block *b, const Step *s, size_t line, size_t first, size_t end, const float *queries,
    float *mixed, const Work *w)
{
    size_t dim = (size_t)b->head_dim, heads = (size_t)b->heads, length = (size_t)s->source_length, visible = 0;
    size_t rows = (size_t)s->beams * (size_t)s->tokens;
    const float *bias = s->source_bias ? s->source_bias + line * length : NULL;
    for (size_t t = 0; t < length; t++) {
        if (bias && bias[t] == -INFINITY) continue;
        w->bias[visible] = bias ? bias[t] : 0.0f;
        w->places[visible++] = t * dim;
    }
    fill_up(w->places, visible);
    if (s->weights) memset(s->weights + line * rows * length, 0, rows * length * sizeof(float));
    for (size_t head = first; head < end; head++)
        for (size_t row = line * rows; row < (line + 1) * rows; row++) {
            size_t start = (line * heads + head) * length * dim, place = (row * heads + head) * dim;
            float share = attend(queries + place, s->keys + start, s->values + start, w->places, bias ? w->bias : NULL,
                visible, dim, w->scores, mixed + place) / (float)heads;
            for (size_t t = 0; s->weights && t < visible; t++)
                s->weights[row * length + w->places[t] / dim] += share * w->scores[t];
        }
}

/* ---- the feed-forward network ---- */

INLINE void activate_row(int kind, size_t width, float *h)
{
    for (size_t i = 0; i < width; i++) h[i] = activate_one(kind, h[i]).value;
}

/* The hidden numbers of a row. Gated: the first half is activated and multiplies the second. */
static void activate_hidden(const Block *b, float *h)
{
    size_t dim = (size_t)b->hidden_dim;
    BY_ACTIVATION(b->activation, activate_row, dim, h)
    if (b->gated)
        for (size_t i = 0; i < dim; i++) h[i] *= h[dim + i];
}

/* The same for all rows; gated ones close up. */
static void activate(const Block *b, int threads, size_t rows, float *hidden)
{
    size_t dim = (size_t)b->hidden_dim, width = dim * (b->gated ? 2 : 1);
    if (threads == 1 || rows * dim * 16 <= WORTH_THREADS)
        for (size_t row = 0; row < rows; row++) activate_hidden(b, hidden + row * width);
    else {
        #pragma omp parallel for num_threads(threads)
        for (size_t row = 0; row < rows; row++) activate_hidden(b, hidden + row * width);
    }
    if (b->gated)
        for (size_t row = 1; row < rows; row++) memcpy(hidden + row * dim, hidden + row * 2 * dim, dim * sizeof(float));
}

static void feed_forward(const Block *b, int threads, size_t rows, float *x, float *narrow, float *wide, void *room)
{
    const float *entered = enter(b, threads, rows, x, &b->feedforward_norm, narrow);
    KERNEL(multiply)(threads, rows, entered, &b->expand, room, wide);
    activate(b, threads, rows, wide);
    KERNEL(multiply)(threads, rows, wide, &b->contract, room, narrow);
    leave(b, threads, rows, x, narrow, &b->feedforward_norm);
}

/* ---- a step, and whole sequences ---- */

/* Bytes for the rows of any of a block's products, made ready. Layers that a block lacks take none. */
static size_t measure_room(const Block *b, size_t rows)
{
    const Linear *layers[] = {&b->in, &b->out, &b->query, &b->cross_out, &b->expand, &b->contract};
    size_t most = 0;
    for (int n = 0; n < 6; n++) most = most_of(most, KERNEL(measure_rows)(layers[n], rows));
    return (most + 63) / 64 * 64;
}

/* Whether every token of a line's past stands in the slot of one of its beams. */
static int has_slots(const Step *s, size_t line)
{
    size_t beams = (size_t)s->beams, room = (size_t)s->room, position = (size_t)s->positions[line];
    unsigned wrong = 0;
    for (size_t row = line * beams; s->slots && row < (line + 1) * beams; row++)
        for (size_t t = 0; t < position; t++) wrong |= (uint32_t)s->slots[row * room + t] >= (uint32_t)s->beams;
    return !wrong;
}

/* x, y: (batch · beams · tokens, model_dim), a new token a row. */
static int step_block(int threads, const Block *b, const Step *s, const float *x, float *y)
{
    size_t batch = (size_t)s->batch, beams = (size_t)s->beams, tokens = (size_t)s->tokens, rows = batch * beams * tokens;
    size_t dim = (size_t)b->model_dim, inner = (size_t)b->heads * (size_t)b->head_dim, longest = (size_t)s->source_length;
    if (!rows) return OK;
    for (size_t line = 0; line < batch; line++) {
        if (s->positions[line] < 0 || s->positions[line] > s->room - s->tokens) return OUT_OF_ROOM;
        if (!has_slots(s, line)) return NO_SUCH_SLOT;
        longest = most_of(longest, (size_t)s->positions[line] + tokens);
    }
    longest = round_up(longest);
    size_t widest = most_of(most_of((size_t)b->in.outputs, (size_t)b->expand.outputs), inner);
    size_t per_thread = 2 * longest + 2 * (size_t)b->head_dim;
    float *narrow = reserve(rows * (dim + inner + widest) + (size_t)threads * per_thread, sizeof(float));
    size_t *places = reserve((size_t)threads * beams * longest, sizeof(size_t));
    Work *works = reserve((size_t)threads, sizeof(Work));
    void *room = reserve(measure_room(b, rows), 1);
    if (!narrow || !places || !works || !room) {
        free(narrow), free(places), free(works), free(room);
        return NO_MEMORY;
    }
    float *mixed = narrow + rows * dim, *wide = mixed + rows * inner, *rest = wide + rows * widest;
    for (size_t thread = 0; thread < (size_t)threads; thread++, rest += per_thread) {
        float *angles = rest + 2 * longest;
        works[thread] = (Work){places + thread * beams * longest, rest, rest + longest, angles, angles + b->head_dim, longest};
    }

    const float *entered = enter(b, threads, rows, x, &b->attention_norm, narrow);
    KERNEL(multiply)(threads, rows, entered, &b->in, room, wide);
    for (int source = 0; source < (s->keys ? 2 : 1); source++) {
        size_t parts = (size_t)(source ? b->heads : b->kv_heads);
        size_t tasks = batch < (size_t)threads && !(source && s->weights) ? parts : 1; /* a line: weights add up its heads */
        if (source) {
            entered = enter(b, threads, rows, y, &b->cross_norm, narrow);
            KERNEL(multiply)(threads, rows, entered, &b->query, room, wide);
        }
        int alone = threads == 1 || 16 * rows * inner * (longest + 8) <= WORTH_THREADS;
        if (alone)
            for (size_t line = 0; line < batch; line++) {
                if (source) attend_to_source(b, s, line, 0, parts, wide, mixed, &works[0]);
                else attend_to_past(b, s, line, 0, parts, wide, mixed, &works[0]);
            }
        else {
            #pragma omp parallel for schedule(dynamic) num_threads(threads)
            for (size_t task = 0; task < batch * tasks; task++) {
                size_t line = task / tasks, first = task % tasks, end = tasks == 1 ? parts : first + 1;
                const Work *w = &works[omp_get_thread_num()];
                if (source) attend_to_source(b, s, line, first, end, wide, mixed, w);
                else attend_to_past(b, s, line, first, end, wide, mixed, w);
            }
        }
        KERNEL(multiply)(threads, rows, mixed, source ? &b->cross_out : &b->out, room, narrow);
        if (!source) memcpy(y, x, rows * dim * sizeof(float));
        leave(b, threads, rows, y, narrow, source ? &b->cross_norm : &b->attention_norm);
    }
    feed_forward(b, threads, rows, y, narrow, wide, room);
    free(narrow), free(places), free(works), free(room);
    return OK;
}

/* A step through `count` blocks, one after the other, each with its own cache, keys and values. x and y do not overlap;
   between blocks, rows are in y or in a buffer of their own. */
API int KERNEL(step)(int threads, int32_t count, const Block *const *blocks, const Step *s, float *const *caches,
    const float *const *keys, const float *const *values, const float *x, float *y)
{
    size_t size = (size_t)s->batch * (size_t)s->beams * (size_t)s->tokens * (size_t)blocks[0]->model_dim;
    float *between = reserve(size, sizeof(float));
    int status = between ? OK : NO_MEMORY;
    for (int32_t n = 0; n < count && status == OK; n++) {
        Step own = *s;
        own.cache = caches[n];
        if (n < count - 1) own.weights = NULL;
        if (keys) own.keys = keys[n], own.values = values[n];
        float *to = (count - n) % 2 ? y : between; /* so that the last is y */
        status = step_block(threads, blocks[n], &own, x, to);
        x = to;
    }
    free(between);
    return status;
}

/* What a block does with rows of whole sequences once its last attention, to a source if it has one, has mixed them. */
static void finish_rows(const Block *b, int source, int threads, size_t rows, const float *x, const float *mixed,
    float *buffer, void *room, float *y)
{
    size_t dim = (size_t)b->model_dim;
    KERNEL(multiply)(threads, rows, mixed, source ? &b->cross_out : &b->out, room, buffer);
    memcpy(y, x, rows * dim * sizeof(float));
    leave(b, threads, rows, y, buffer, source ? &b->cross_norm : &b->attention_norm);
    feed_forward(b, threads, rows, y, buffer, buffer + rows * dim, room);
}

API int KERNEL(finish)(int threads, const Block *b, int32_t source, int64_t count, const float *x, const float *mixed,
    float *y)
{
    size_t rows = (size_t)count, dim = (size_t)b->model_dim, inner = (size_t)b->heads * (size_t)b->head_dim;
    int many = rows >= MANY;
    size_t workers = many ? (size_t)threads : 1, together = many ? CHUNK : rows;
    size_t size = together * (dim + (size_t)b->expand.outputs), room = measure_room(b, together);
    if (!rows) return OK;
    float *buffers = reserve(workers * size, sizeof(float));
    char *rooms = reserve(workers, room + 1);
    if (!buffers || !rooms) {
        free(buffers), free(rooms);
        return NO_MEMORY;
    }
    if (!many) finish_rows(b, source, threads, rows, x, mixed, buffers, rooms, y);
    else {
        #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
        for (size_t row = 0; row < rows; row += CHUNK) {
            size_t own = (size_t)omp_get_thread_num();
            finish_rows(b, source, 1, least(rows - row, CHUNK), x + row * dim, mixed + row * inner,
                buffers + own * size, rooms + own * room, y + row * dim);
        }
    }
    free(buffers), free(rooms);
    return OK;
}
