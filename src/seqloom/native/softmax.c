/* Rows of scores over a vocabulary, each gone through while it is in the cache. */

#include "bfloat16.h"

static size_t count_blocks(size_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

static size_t measure_block(size_t block, size_t count)
{
    return least(count - block * BLOCK, BLOCK);
}

/* log Σ exp x of each row; bounds: the largest of each of its blocks */
API void KERNEL(normalise)(int threads, int64_t rows, int64_t size, const float *scores, float *normalisers,
    float *bounds)
{
    size_t count = (size_t)size, num_blocks = count_blocks(count);
    #pragma omp parallel for schedule(dynamic, 4) num_threads(threads) \
        if (threads > 1 && (size_t)rows * count * 4 > WORTH_THREADS)
    for (int64_t row = 0; row < rows; row++) {
        const float *x = scores + (size_t)row * count;
        float *largest = bounds + (size_t)row * num_blocks;
        for (size_t b = 0; b < num_blocks; b++) largest[b] = find_largest(x + b * BLOCK, measure_block(b, count));
        float most = find_largest(largest, num_blocks), shift = isinf(most) ? 0.0f : most;
        normalisers[row] = shift + logf(sum_exponentials(x, count, shift, NULL));
    }
}

/* The largest that is left of a block: NaN when nothing is, which no comparison likes. */
static float look_again(const float *x, size_t count)
{
    float most = find_largest(x, count);
    if (most > -INFINITY) return most;
    for (size_t i = 0; i < count; i++)
        if (x[i] == most) return most;
    return NAN;
}

static size_t find_first(const float *x, size_t count, float wanted)
{
    size_t place = 0;
    while (place < count - 1 && x[place] != wanted) place++;
    return place;
}

/* The `wanted` largest scores of a row and where they stand, largest first, of equal ones the first first.
   No score of a block exceeds its bound. What is found is struck out with NaN until all are, and bounds come down. */
static void find_top_of_row(float *x, size_t count, size_t wanted, float *bounds, float *values, int64_t *places)
{
    size_t num_blocks = count_blocks(count);
    for (size_t n = 0; n < wanted;) {
        size_t best = find_first(bounds, num_blocks, find_largest(bounds, num_blocks)), start = best * BLOCK;
        size_t size = measure_block(best, count);
        float most = look_again(x + start, size);
        if (most != bounds[best] && !isnan(bounds[best])) {
            bounds[best] = most;
            continue;
        }
        places[n] = (int64_t)(start + find_first(x + start, size, most));
        values[n] = x[places[n]];
        x[places[n++]] = NAN;
        if (n < wanted) bounds[best] = look_again(x + start, size);
    }
    for (size_t n = wanted; n-- > 0;) x[places[n]] = values[n];
}

API void KERNEL(find_top)(int threads, int64_t rows, int64_t size, float *scores, int64_t wanted, float *bounds,
    float *values, int64_t *places)
{
    size_t count = (size_t)size, num_blocks = count_blocks(count);
    #pragma omp parallel for schedule(dynamic, 4) num_threads(threads) \
        if (threads > 1 && (size_t)rows * num_blocks * (size_t)wanted > WORTH_THREADS / 64)
    for (int64_t row = 0; row < rows; row++)
        find_top_of_row(scores + (size_t)row * count, count, (size_t)wanted, bounds + (size_t)row * num_blocks,
            values + row * wanted, places + row * wanted);
}

/* Scores of `precision`, without their bias, become the gradient of the loss by them; losses: one a row. */
API int KERNEL(cross_entropy)(int threads, int precision, int64_t rows, int64_t size, void *scores, const float *bias,
    const int64_t *targets, float smoothing, float *losses)
{
    size_t count = (size_t)size;
    float *room = reserve((size_t)threads * count, sizeof(float));
    if (!room) return NO_MEMORY;
    #pragma omp parallel for num_threads(threads) if (threads > 1 && (size_t)rows * count * 4 > WORTH_THREADS)
    for (int64_t row = 0; row < rows; row++) {
        void *at = find(precision, scores, row * size);
        float *x = (float *)read_row(precision, at, count, room + (size_t)omp_get_thread_num() * count);
        float mean = 0.0f, even = smoothing / (float)count;
        for (size_t i = 0; i < count; i++) x[i] += bias[i];
        float most = find_largest(x, count), right = x[targets[row]];
        if (smoothing > 0.0f) mean = smoothing * (sum(x, count) / (float)count - most);
        float total = sum_exponentials(x, count, most, x), share = 1.0f / total;
        losses[row] = logf(total) - (1.0f - smoothing) * (right - most) - mean;
        for (size_t i = 0; i < count; i++) x[i] = x[i] * share - even;
        x[targets[row]] -= 1.0f - smoothing;
        close_row(precision, at, count, x);
    }
    free(room);
    return OK;
}
