/* Rows of scores over a vocabulary, each gone through while it is in the cache. nn/softmax.py says what is computed. */

#include "native.h"
#include <stdint.h>

#define BLOCK 64 /* scores whose largest is remembered for when the largest of a row are looked for */

static float sum_exponentials(const float *x, int count, float most)
{
    float sum = 0.0f;
    for (int i = 0; i < count; i++) sum += exponential(x[i] - most);
    return sum;
}

static int count_blocks(int count)
{
    return (count + BLOCK - 1) / BLOCK;
}

static int measure_block(int block, int count)
{
    int left = count - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* log Σ exp x of each row; bounds: the largest of each of its blocks */
void normalise(int rows, int count, const float *scores, float *normalisers, float *bounds)
{
    int num_blocks = count_blocks(count);
    #pragma omp parallel for schedule(dynamic, 4) if ((size_t)rows * count * 4 > WORTH_THREADS)
    for (int row = 0; row < rows; row++) {
        const float *x = scores + (size_t)row * count;
        float *largest = bounds + (size_t)row * num_blocks;
        for (int b = 0; b < num_blocks; b++) largest[b] = find_largest(x + b * BLOCK, measure_block(b, count));
        float most = find_largest(largest, num_blocks);
        normalisers[row] = most + logf(sum_exponentials(x, count, most));
    }
}

/* The largest that is left of a block: NaN when nothing is, which no comparison likes. */
static float look_again(const float *x, int count)
{
    float most = find_largest(x, count);
    if (most > -INFINITY) return most;
    for (int i = 0; i < count; i++)
        if (x[i] == most) return most;
    return NAN;
}

static int find_first(const float *x, int count, float wanted)
{
    int place = 0;
    while (place < count - 1 && x[place] != wanted) place++;
    return place;
}

/* The `wanted` largest scores of a row and where they stand, largest first, of equal ones the first first.
   No score of a block exceeds its bound. What is found is struck out with NaN until all are, and bounds come down. */
static void find_top_of_row(float *x, int count, int wanted, float *bounds, float *values, int64_t *places)
{
    int num_blocks = count_blocks(count);
    for (int n = 0; n < wanted;) {
        int best = find_first(bounds, num_blocks, find_largest(bounds, num_blocks)), start = best * BLOCK;
        int size = measure_block(best, count);
        float most = look_again(x + start, size);
        if (most != bounds[best] && !isnan(bounds[best])) {
            bounds[best] = most;
            continue;
        }
        places[n] = start + find_first(x + start, size, most);
        values[n] = x[places[n]];
        x[places[n++]] = NAN;
        if (n < wanted) bounds[best] = look_again(x + start, size);
    }
    for (int n = 0; n < wanted; n++) x[places[n]] = values[n];
}

void find_top(int rows, int count, float *scores, int wanted, float *bounds, float *values, int64_t *places)
{
    int num_blocks = count_blocks(count);
    #pragma omp parallel for schedule(dynamic, 4) if ((size_t)rows * num_blocks * wanted > WORTH_THREADS / 64)
    for (int row = 0; row < rows; row++)
        find_top_of_row(scores + (size_t)row * count, count, wanted, bounds + (size_t)row * num_blocks,
                        values + (size_t)row * wanted, places + (size_t)row * wanted);
}

/* Scores without their bias become the gradient of the loss by them; losses: one a row. */
void cross_entropy(
    int rows, int count, float *scores, const float *bias, const int64_t *targets, float smoothing, float *losses)
{
    #pragma omp parallel for if ((size_t)rows * count * 4 > WORTH_THREADS)
    for (int row = 0; row < rows; row++) {
        float *x = scores + (size_t)row * count, total = 0.0f, sum = 0.0f, even = smoothing / count;
        for (int i = 0; i < count; i++) x[i] += bias[i];
        float most = find_largest(x, count), right = x[targets[row]];
        if (smoothing > 0.0f)
            for (int i = 0; i < count; i++) total += x[i] - most;
        for (int i = 0; i < count; i++) {
            x[i] = exponential(x[i] - most);
            sum += x[i];
        }
        losses[row] = logf(sum) - (1.0f - smoothing) * (right - most) - even * total;
        float share = 1.0f / sum;
        for (int i = 0; i < count; i++) x[i] = x[i] * share - even;
        x[targets[row]] -= 1.0f - smoothing;
    }
}
