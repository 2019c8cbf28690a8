/* A step of decoding from the ids of new tokens to the scores of the next one, in one call: what stands around the
 * blocks is little work, but in Python it takes as long as all of theirs for one row.
 *
 *   x = factor · embedding[id] + position          (a norm, if there is one)
 *   x ──▶ blocks ──▶ (a norm, if there is one) ──▶ output layer ──▶ scores, for the last of a row's new tokens
 */

#include "kernels.h"

/* positions: the vector of each position, position_width numbers each, or NULL; ids: (batch · beams, tokens);
   scores: (batch · beams, outputs) */
API int KERNEL(predict)(int threads, const Decoder *d, const Step *s, float *const *caches, const float *const *keys,
    const float *const *values, const float *positions, const int64_t *ids, float *scores)
{
    size_t lines = (size_t)s->batch, beams = (size_t)s->beams, tokens = (size_t)s->tokens, rows = lines * beams;
    size_t dim = (size_t)d->blocks[0]->model_dim, added = positions ? (size_t)d->position_width : 0;
    for (size_t n = 0; n < rows * tokens; n++)
        if (ids[n] < 0 || ids[n] >= d->vocabulary) return NO_SUCH_TOKEN;
    if (!rows || !tokens) return OK;
    float *x = reserve(2 * rows * tokens * dim, sizeof(float)), *y = x + rows * tokens * dim;
    if (!x) return NO_MEMORY;
    for (size_t n = 0; n < rows * tokens; n++) {
        const float *from = d->embedding + (size_t)ids[n] * dim;
        size_t position = (size_t)s->positions[n / tokens / beams] + n % tokens;
        float *to = x + n * dim;
        for (size_t i = 0; i < dim; i++) to[i] = from[i] * d->factor;
        for (size_t i = 0; i < added; i++) to[i] += positions[position * added + i];
        if (d->input_norm.gain) normalise_row(dim, to, &d->input_norm, to);
    }
    int status = KERNEL(step)(threads, d->count, d->blocks, s, caches, keys, values, x, y);
    for (size_t row = 0; row < rows; row++) {
        const float *last = y + (row * tokens + tokens - 1) * dim;
        if (d->final_norm.gain) normalise_row(dim, last, &d->final_norm, x + row * dim);
        else memcpy(x + row * dim, last, dim * sizeof(float));
    }
    if (status == OK) status = KERNEL(linear)(threads, (int64_t)rows, x, &d->output, scores);
    free(x);
    return status;
}
