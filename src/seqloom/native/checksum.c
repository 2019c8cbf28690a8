/* A number of 64 bits that changes when any byte of some memory does, or the order of its parts. */

#include "kernels.h"

#define PIECE 65536 /* bytes: pieces are done side by side, then put together in order */
#define STREAMS 8   /* words of 8 bytes that are taken in at a time */

/* One to one in both arguments: a changed word changes the state, whatever comes after. */
static inline uint64_t take_in(uint64_t state, uint64_t word)
{
    state ^= word;
    return (state << 29 | state >> 35) * 0x9e3779b97f4a7c15u;
}

static uint64_t check_piece(const unsigned char *data, size_t size)
{
    uint64_t states[STREAMS], words[STREAMS], all = size;
    for (int j = 0; j < STREAMS; j++) states[j] = (uint64_t)j + 1;
    for (; size >= sizeof words; data += sizeof words, size -= sizeof words) {
        memcpy(words, data, sizeof words);
        for (int j = 0; j < STREAMS; j++) states[j] = take_in(states[j], words[j]);
    }
    memset(words, 0, sizeof words);
    if (size) memcpy(words, data, size);
    for (int j = 0; j < STREAMS; j++) all = take_in(all, take_in(states[j], words[j]));
    return all;
}

/* of `count` stretches of memory, each with a number of its own (what else is known of it) */
API int KERNEL(checksum)(int threads, int64_t count, const unsigned char *const *data, const int64_t *sizes,
    const uint64_t *marks, uint64_t *result)
{
    uint64_t all = (uint64_t)count;
    for (int64_t n = 0; n < count; n++) {
        size_t size = (size_t)sizes[n], pieces = (size + PIECE - 1) / PIECE;
        uint64_t *found = reserve(pieces, sizeof(uint64_t));
        if (!found) return NO_MEMORY;
        #pragma omp parallel for num_threads(threads) if (threads > 1 && pieces > 8)
        for (size_t piece = 0; piece < pieces; piece++)
            found[piece] = check_piece(data[n] + piece * PIECE, least(size - piece * PIECE, PIECE));
        all = take_in(take_in(all, marks[n]), size);
        for (size_t piece = 0; piece < pieces; piece++) all = take_in(all, found[piece]);
        free(found);
    }
    *result = all;
    return OK;
}
