/* A step of a whole decoder in one call: from the new tokens of each line to the scores of what may come next.
 *
 *   x = factor · embedding[token] + p[position] ──▶ norm ──▶ blocks ──▶ norm ──▶ scores of the last new token
 *
 * A step of one row is a third of a millisecond of reading weights. Each call from Python costs some hundredths of it,
 * and more, since weights push Python's own code out of the nearest caches. So there is one.
 */

#include "kernels.h"

/* On its own, so that the product is rounded before a position is added, as it is elsewhere. */
static __attribute__((noinline)) void scale_row(size_t dim, const float *from, float factor, float *x)
{
    for (size_t i = 0; i < dim; i++) x[i] = factor * from[i];
}

static int embed(const Model *m, const Step *s, const int64_t *ids, float *x)
{
    size_t dim = (size_t)m->model_dim, beams = (size_t)s->beams, tokens = (size_t)s->tokens, room = (size_t)s->room;
    for (size_t row = 0; row < (size_t)s->batch * beams; row++) {
        size_t position = (size_t)s->positions[row / beams];
        if (s->positions[row / beams] < 0 || s->positions[row / beams] > s->room - s->tokens) return OUT_OF_ROOM;
        if (s->vectors && position + tokens > (size_t)s->longest) return OUT_OF_ROOM;
        for (size_t t = 0; t < tokens; t++, x += dim) {
            int64_t id = ids[row * tokens + t];
            if (id < 0 || id >= m->vocabulary) return NO_SUCH_TOKEN;
            scale_row(dim, m->table + (size_t)id * dim, m->factor, x);
            const float *vector = s->vectors ? s->vectors + (position + t) * (size_t)s->vector_dim : NULL;
            for (size_t i = 0; vector && i < (size_t)s->vector_dim; i++) x[i] += vector[i];
            if (m->input_norm.gain) normalise_row(dim, x, &m->input_norm, x);
            if (s->slots) s->slots[row * room + position + t] = (int32_t)(row % beams);
        }
    }
    return OK;
}

/* ids: (batch · beams, tokens); scores: (batch · beams, vocabulary). Caches are written to; each new token stands in the
   slot of its own beam. */
API int KERNEL(predict)(int threads, const Model *m, const Step *s, const int64_t *ids, float *const *caches,
    const float *const *keys, const float *const *values, float *scores)
{
    size_t dim = (size_t)m->model_dim, rows = (size_t)s->batch * (size_t)s->beams, tokens = (size_t)s->tokens;
    float *x = reserve(2 * rows * tokens * dim, sizeof(float)), *y = x + rows * tokens * dim;
    void *room = reserve(KERNEL(measure_rows)(&m->output, rows), 1);
    int status = x && room ? embed(m, s, ids, x) : NO_MEMORY;
    if (status == OK) status = KERNEL(step)(threads, m->count, m->blocks, s, caches, keys, values, x, y);
    if (status == OK) {
        for (size_t row = 0; row < rows; row++) {
            const float *last = y + ((row + 1) * tokens - 1) * dim;
            if (m->final_norm.gain) normalise_row(dim, last, &m->final_norm, x + row * dim);
            else memcpy(x + row * dim, last, dim * sizeof(float));
        }
        KERNEL(multiply)(threads, rows, x, &m->output, room, scores);
    }
    free(x), free(room);
    return status;
}
