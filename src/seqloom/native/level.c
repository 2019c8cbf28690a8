/* What the library is, compiled for any processor of its kind: read before a kernel is called. */

#include "kernels.h"

#define SIZE(type) {#type, sizeof(type)}
#define FIELD(type, field) {#type "." #field, offsetof(type, field)}
#define CONSTANT(name) {#name, name}

static const struct { const char *name; int64_t value; } facts[] = {
    CONSTANT(ABI), CONSTANT(BLOCK), CONSTANT(OK), CONSTANT(NO_MEMORY), CONSTANT(OUT_OF_ROOM), CONSTANT(NO_SUCH_SLOT),
    CONSTANT(NO_SUCH_TOKEN),
    CONSTANT(RELU), CONSTANT(GELU), CONSTANT(GELU_TANH), CONSTANT(SILU), CONSTANT(TANH), CONSTANT(SQUARED_RELU),
    CONSTANT(EVERYTHING), CONSTANT(PAST), CONSTANT(FUTURE), CONSTANT(FLOAT32), CONSTANT(BFLOAT16), CONSTANT(INT8),
    SIZE(Linear), FIELD(Linear, weight), FIELD(Linear, bias), FIELD(Linear, scales), FIELD(Linear, totals),
    FIELD(Linear, inputs), FIELD(Linear, outputs), FIELD(Linear, precision),
    SIZE(Norm), FIELD(Norm, gain), FIELD(Norm, shift), FIELD(Norm, epsilon),
    SIZE(Block), FIELD(Block, model_dim), FIELD(Block, heads), FIELD(Block, kv_heads), FIELD(Block, head_dim),
    FIELD(Block, hidden_dim), FIELD(Block, post_norm), FIELD(Block, gated), FIELD(Block, activation),
    FIELD(Block, normalised), FIELD(Block, attention_norm), FIELD(Block, cross_norm), FIELD(Block, feedforward_norm),
    FIELD(Block, in), FIELD(Block, out), FIELD(Block, query), FIELD(Block, cross_out), FIELD(Block, expand),
    FIELD(Block, contract), FIELD(Block, frequencies),
    SIZE(Step), FIELD(Step, batch), FIELD(Step, beams), FIELD(Step, tokens), FIELD(Step, room),
    FIELD(Step, source_length), FIELD(Step, cache), FIELD(Step, positions), FIELD(Step, slots), FIELD(Step, keys),
    FIELD(Step, values), FIELD(Step, source_bias), FIELD(Step, weights), FIELD(Step, vectors), FIELD(Step, longest), FIELD(Step, vector_dim),
    SIZE(Model), FIELD(Model, blocks), FIELD(Model, table), FIELD(Model, input_norm), FIELD(Model, final_norm),
    FIELD(Model, output), FIELD(Model, count), FIELD(Model, model_dim), FIELD(Model, vocabulary), FIELD(Model, factor),
    SIZE(Attention), FIELD(Attention, sequences), FIELD(Attention, heads), FIELD(Attention, groups),
    FIELD(Attention, dim), FIELD(Attention, sees), FIELD(Attention, normalised), FIELD(Attention, longest_query),
    FIELD(Attention, longest_key), FIELD(Attention, precision),
    FIELD(Attention, query_starts), FIELD(Attention, query_counts), FIELD(Attention, key_starts),
    FIELD(Attention, key_counts), FIELD(Attention, query), FIELD(Attention, key), FIELD(Attention, value),
    FIELD(Attention, query_width), FIELD(Attention, key_width), FIELD(Attention, cosines), FIELD(Attention, sines),
    FIELD(Attention, scale), FIELD(Attention, rate), FIELD(Attention, seed),
    SIZE(Recurrence), FIELD(Recurrence, rows), FIELD(Recurrence, lines), FIELD(Recurrence, hidden),
    FIELD(Recurrence, gates), FIELD(Recurrence, reverse), FIELD(Recurrence, starts), FIELD(Recurrence, counts),
    FIELD(Recurrence, order), FIELD(Recurrence, weight), FIELD(Recurrence, bias), FIELD(Recurrence, initial),
    FIELD(Recurrence, values), FIELD(Recurrence, kept), FIELD(Recurrence, out),
    SIZE(RecurrenceGrads), FIELD(RecurrenceGrads, grad), FIELD(RecurrenceGrads, last_grad),
    FIELD(RecurrenceGrads, changes), FIELD(RecurrenceGrads, before), FIELD(RecurrenceGrads, initial_grad),
};

/* A constant, the size of a structure or the offset of a field by its name; −1 where there is none. */
API int64_t seqloom_fact(const char *name)
{
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (!strcmp(facts[i].name, name)) return facts[i].value;
    return -1;
}

/* The levels that were built, the plainest first, separated by spaces. */
API const char *seqloom_levels(void)
{
    return LEVELS;
}

API int seqloom_threaded(void)
{
    return THREADED;
}

/* Whether this processor, and its operating system, can run a level. */
API int seqloom_supports(const char *level)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl");
    if (!strcmp(level, "x86-64-v3")) return v3;
    if (!strcmp(level, "x86-64-v4")) return v4;
    int vnni = v4 && __builtin_cpu_supports("avx512vnni");
    if (!strcmp(level, "x86-64-v4-vnni")) return vnni;
    if (!strcmp(level, "x86-64-v4-bf16")) return vnni && __builtin_cpu_supports("avx512bf16");
    return 0;
#elif defined(__aarch64__)
    return !strcmp(level, "aarch64");
#else
    return level == NULL;
#endif
}
