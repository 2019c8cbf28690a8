/* Numbers that are float32 or bfloat16 in memory, and always float32 while they are computed with.
 *
 * A kernel asks for a row to read, gets the memory itself where that is float32, or else its own `room`, filled; and
 * likewise for a row to write. So there is one text for both, and a cast costs no pass over memory of its own.
 */

#ifndef SEQLOOM_BFLOAT16_H
#define SEQLOOM_BFLOAT16_H

#include "kernels.h"

/* The nearest bfloat16, of two the even one. Rounding must not make a number of what is none. */
static inline uint16_t shorten(float x)
{
    union { float f; uint32_t bits; } whole = {x};
    uint32_t rounded = (whole.bits + 0x7fffu + (whole.bits >> 16 & 1)) >> 16, none = whole.bits >> 16 | 0x40;
    return (uint16_t)((whole.bits & 0x7fffffffu) > 0x7f800000u ? none : rounded);
}

static inline float widen(uint16_t bits)
{
    union { uint32_t bits; float f; } whole = {(uint32_t)bits << 16};
    return whole.f;
}

static inline void shorten_row(size_t count, const float *from, uint16_t *to)
{
    for (size_t i = 0; i < count; i++) to[i] = shorten(from[i]);
}

static inline void widen_row(size_t count, const uint16_t *from, float *to)
{
    for (size_t i = 0; i < count; i++) to[i] = widen(from[i]);
}

/* The number at a place of a tensor. */
static inline void *find(int precision, const void *x, int64_t place)
{
    return (char *)x + place * (precision == BFLOAT16 ? 2 : 4);
}

/* Numbers to read. */
static inline const float *read_row(int precision, const void *x, size_t count, float *room)
{
    if (precision != BFLOAT16) return x;
    widen_row(count, x, room);
    return room;
}

/* Where numbers are to be written, and that they are. */
static inline float *open_row(int precision, void *y, float *room)
{
    return precision == BFLOAT16 ? room : y;
}

static inline void close_row(int precision, void *y, size_t count, const float *room)
{
    if (precision == BFLOAT16) shorten_row(count, room, y);
}

#endif
