/* Which ids the parts of texts have, remembered: a library of its own, plain C for any processor, without threads.
 *
 * A text is cut at places where its tokeniser cuts, too, whatever stands on either side (`text/cuts.py` says which, as a
 * class for each character and the pairs of classes that may be parted). Parts that were met before are looked up in a
 * hash table, compared byte by byte; those that were not are listed, and Python asks the tokeniser itself for their ids.
 * So this file holds no rule of any tokeniser. One thread at a time may use a table.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define WORDS_ABI 1     /* raise it whenever a function changes what it takes or means */
#define PADDING 8       /* bytes after the texts that may be read, whatever they are */
#define PUNCTUATION 3   /* a class: see `text/cuts.py` */
#define FIRST 1         /* of a part: it begins a text */

typedef struct { uint64_t hash; int64_t start, ids; uint32_t size, count, kind; } Part;

typedef struct {
    uint32_t *slots; /* 1 + the number of a part, 0 where empty; twice as many as parts, or more */
    Part *parts;
    uint8_t *text;   /* of all parts, end to end */
    uint32_t *ids;   /* of all parts, end to end */
    int64_t slot_room, part_count, part_room, text_size, text_room, id_count, id_room;
} Table;

API int64_t seqloom_words_abi(void)
{
    return WORDS_ABI;
}

API Table *seqloom_words_make(void)
{
    return calloc(1, sizeof(Table));
}

API void seqloom_words_free(Table *table)
{
    if (!table) return;
    free(table->slots);
    free(table->parts);
    free(table->text);
    free(table->ids);
    free(table);
}

/* Bytes in use. */
API int64_t seqloom_words_measure(const Table *table)
{
    return (int64_t)sizeof(Table) + table->slot_room * (int64_t)sizeof(uint32_t) + table->part_room * (int64_t)sizeof(Part)
        + table->text_room + table->id_room * (int64_t)sizeof(uint32_t);
}

API int64_t seqloom_words_count(const Table *table)
{
    return table->part_count;
}

/* Room for `more` things after the first `count`; grown by half, at least. */
static int grow(void **memory, int64_t *room, int64_t count, int64_t more, size_t size)
{
    if (count + more <= *room) return 1;
    int64_t wanted = count + more + *room / 2 + 256;
    void *found = realloc(*memory, (size_t)wanted * size);
    if (!found) return 0;
    *memory = found;
    *room = wanted;
    return 1;
}

static uint64_t read_word(const uint8_t *text, size_t size)
{
    uint64_t word;
    memcpy(&word, text, 8);
    return size >= 8 ? word : word & (((uint64_t)1 << (8 * size)) - 1);
}

/* Bytes after the end of a text are read (see PADDING), but do not matter; on a machine that stores the highest byte
   first, the hash is of other bits of the same bytes, and parts are compared as bytes, so answers do not change. */
static uint64_t hash_part(const uint8_t *text, size_t size, uint32_t kind)
{
    uint64_t state = (uint64_t)size * 2 + kind;
    while (size) {
        size_t taken = size < 8 ? size : 8;
        state = (state ^ read_word(text, taken)) * 0x9e3779b97f4a7c15u;
        state ^= state >> 29;
        text += taken;
        size -= taken;
    }
    state *= 0xbf58476d1ce4e5b9u;
    return state ^ state >> 32;
}

static int widen(Table *table)
{
    int64_t room = table->slot_room ? 2 * table->slot_room : 1024;
    uint32_t *slots = calloc((size_t)room, sizeof *slots);
    if (!slots) return 0;
    for (int64_t n = 0; n < table->part_count; n++) {
        uint64_t at = table->parts[n].hash & (uint64_t)(room - 1);
        while (slots[at]) at = (at + 1) & (uint64_t)(room - 1);
        slots[at] = (uint32_t)n + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->slot_room = room;
    return 1;
}

/* The number of a part, new or known; −1 where there is no memory. */
static int64_t find_part(Table *table, const uint8_t *text, size_t size, uint32_t kind)
{
    if (2 * table->part_count >= table->slot_room && !widen(table)) return -1;
    uint64_t hash = hash_part(text, size, kind), last = (uint64_t)(table->slot_room - 1), at = hash & last;
    for (; table->slots[at]; at = (at + 1) & last) {
        const Part *part = table->parts + table->slots[at] - 1;
        if (part->hash == hash && part->size == size && part->kind == kind
            && !memcmp(table->text + part->start, text, size))
            return table->slots[at] - 1;
    }
    if (table->part_count >= INT32_MAX || size >= UINT32_MAX
        || !grow((void **)&table->parts, &table->part_room, table->part_count, 1, sizeof(Part))
        || !grow((void **)&table->text, &table->text_room, table->text_size, (int64_t)size, 1))
        return -1;
    memcpy(table->text + table->text_size, text, size);
    table->parts[table->part_count] = (Part){hash, table->text_size, 0, (uint32_t)size, 0, kind};
    table->text_size += (int64_t)size;
    table->slots[at] = (uint32_t)++table->part_count;
    return table->part_count - 1;
}

/* Which class the character at `text` has, and how many bytes it takes. */
static inline unsigned classify(const uint8_t *classes, const uint8_t *text, size_t *size)
{
    unsigned lead = *text;
    if (lead < 0x80) return *size = 1, classes[lead];
    if (lead < 0xe0) return *size = 2, classes[(lead & 0x1f) << 6 | (text[1] & 0x3f)];
    if (lead < 0xf0) return *size = 3, classes[(lead & 0x0f) << 12 | (text[1] & 0x3f) << 6 | (text[2] & 0x3f)];
    return *size = 4, 0;
}

/* Cut texts that stand end to end, followed by PADDING bytes, and look up their parts.

   characters: how many each text has. classes: of each character up to U+FFFF; those beyond have class 0. may_part: for
   the class of a character, a bit for each class that a part may begin with after it. A sign of punctuation begins one
   only if no mark can follow it. With `tell_first`, the first part of a text is another part than the same bytes
   elsewhere. found: the numbers of the parts; counts: how many each text has. Returns how many parts there are in all,
   or −1 where there is no memory. */
API int64_t seqloom_words_find(Table *table, const uint8_t *classes, const uint8_t *may_part, int tell_first,
    const uint8_t *text, int64_t texts, const int64_t *characters, uint32_t *found, int64_t *counts)
{
    uint32_t *next = found;
    for (int64_t n = 0; n < texts; n++) {
        const uint8_t *start = text;
        uint32_t kind = tell_first ? FIRST : 0, *first = next;
        unsigned before = 0; /* nothing is parted from what has class 0 */
        for (int64_t left = characters[n]; left > 0; left--) {
            size_t size;
            unsigned class = classify(classes, text, &size);
            if (may_part[before] >> class & 1 && (class != PUNCTUATION || left == 1 || text[size] < 0x80)) {
                int64_t part = find_part(table, start, (size_t)(text - start), kind);
                if (part < 0) return -1;
                *next++ = (uint32_t)part;
                start = text;
                kind = 0;
            }
            before = class;
            text += size;
        }
        if (text > start) {
            int64_t part = find_part(table, start, (size_t)(text - start), kind);
            if (part < 0) return -1;
            *next++ = (uint32_t)part;
        }
        counts[n] = next - first;
    }
    return next - found;
}

/* The parts from number `first` on: their sizes, whether each begins a text, and a bit for each class that its characters
   have, one space at its start aside. Returns their bytes, end to end. */
API const uint8_t *seqloom_words_list(const Table *table, const uint8_t *classes, int64_t first, int64_t *sizes,
    uint8_t *begins, uint8_t *shapes)
{
    for (int64_t n = first; n < table->part_count; n++) {
        const Part *part = table->parts + n;
        const uint8_t *text = table->text + part->start, *end = text + part->size;
        unsigned shape = 0;
        for (size_t size = 0, from = *text == ' '; text + from < end; from += size)
            shape |= 1u << classify(classes, text + from, &size);
        sizes[n - first] = part->size;
        begins[n - first] = part->kind == FIRST;
        shapes[n - first] = (uint8_t)shape;
    }
    return first < table->part_count ? table->text + table->parts[first].start : NULL;
}

/* Remember the ids of the parts from number `first` on. Returns 0 where there is no memory. */
API int seqloom_words_fill(Table *table, int64_t first, const int64_t *counts, const uint32_t *ids)
{
    for (int64_t n = first; n < table->part_count; n++) {
        int64_t count = counts[n - first];
        if (!grow((void **)&table->ids, &table->id_room, table->id_count, count, sizeof *ids)) return 0;
        if (count) memcpy(table->ids + table->id_count, ids, (size_t)count * sizeof *ids);
        table->parts[n].ids = table->id_count;
        table->parts[n].count = (uint32_t)count;
        table->id_count += count;
        ids += count;
    }
    return 1;
}

/* Where the ids of each text start, when all are put end to end. */
API void seqloom_words_place(const Table *table, int64_t texts, const int64_t *counts, const uint32_t *found,
    int64_t *offsets)
{
    int64_t place = offsets[0] = 0;
    for (int64_t n = 0; n < texts; n++) {
        for (int64_t k = 0; k < counts[n]; k++) place += table->parts[*found++].count;
        offsets[n + 1] = place;
    }
}

/* The ids of some parts, end to end, in numbers of two bytes or of four. */
API void seqloom_words_gather(const Table *table, int64_t parts, const uint32_t *found, int wide, void *ids)
{
    uint16_t *narrow = ids;
    uint32_t *plain = ids;
    for (int64_t n = 0; n < parts; n++) {
        const Part *part = table->parts + found[n];
        const uint32_t *from = table->ids + part->ids;
        if (wide) for (uint32_t k = 0; k < part->count; k++) *plain++ = from[k];
        else for (uint32_t k = 0; k < part->count; k++) *narrow++ = (uint16_t)from[k];
    }
}
