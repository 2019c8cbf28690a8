/* LSTM and GRU over packed sequences, forwards and backwards.
 *
 * At each step the lines that still have a token are the rows of one small product with U, and their gates follow while
 * these rows are in the cache. A line's tokens stay where they are in the packed batch: there is no padding and no copy
 * of it. What does not depend on the step before (the inputs' share, the gradients of the weights) is left to PyTorch,
 * as one large product each. */

#include "kernels.h"

#ifdef __AVX512F__
#define LANES 16
#define TALL 12 /* rows of a tile, whose two registers a row leave some for the weights */
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
#else
#define LANES 8
#define TALL 6
typedef Eight Lanes;
#endif
#define PANEL (2 * LANES) /* columns computed side by side: hidden units of a gate */
#define INNER 512         /* of a product at a time: the weights of a panel for them stay in the cache */
#define APART 16          /* numbers between rows, whose places in the cache would else be the same */
#define TOGETHER 128      /* lines of a job: their states stay in the cache of a core */

static inline size_t count_panels(size_t width) { return (width + PANEL - 1) / PANEL; }

/* ---- products ---- */

/* c = a b, or c + a b, for a few rows of a and a panel of b. */
INLINE void multiply_tile(int rows, size_t inner, const float *a, size_t a_row, const float *b, int more, float *c,
    size_t c_row)
{
    Lanes sums[TALL][2];
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < 2; j++)
            sums[row][j] = more ? *(const Lanes *)(c + (size_t)row * c_row + j * LANES) : (Lanes){0};
    for (size_t k = 0; k < inner; k++, b += PANEL) {
        Lanes first = *(const Lanes *)b, second = *(const Lanes *)(b + LANES);
        for (int row = 0; row < rows; row++) {
            float x = a[(size_t)row * a_row + k];
            sums[row][0] += x * first;
            sums[row][1] += x * second;
        }
    }
    for (int row = 0; row < rows; row++)
        for (int j = 0; j < 2; j++) *(Lanes *)(c + (size_t)row * c_row + j * LANES) = sums[row][j];
}

#define TILE(height) case height: multiply_tile(height, inner, a, a_row, b, more, c, c_row); break;

static void multiply_rows(size_t rows, size_t inner, const float *a, size_t a_row, const float *b, int more, float *c,
    size_t c_row)
{
    switch (rows) {
    TILE(1) TILE(2) TILE(3) TILE(4) TILE(5)
#if TALL == 12
    TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11)
#endif
    default: multiply_tile(TALL, inner, a, a_row, b, more, c, c_row);
    }
}

/* c = a b, or c + a b: all rows of a and some panels of b, each of which holds `inner` rows. */
static void multiply_all(size_t rows, size_t panels, size_t inner, const float *a, size_t a_row, const float *b,
    int more, float *c, size_t c_row)
{
    size_t tiles = (rows + TALL - 1) / TALL;
    for (size_t start = 0; start < inner; start += INNER)
        for (size_t panel = 0; panel < panels; panel++) {
            const float *weights = b + (panel * inner + start) * PANEL;
            for (size_t tile = 0; tile < tiles; tile++) { /* of heights that differ by one at most */
                size_t first = tile * rows / tiles, end = (tile + 1) * rows / tiles;
                multiply_rows(end - first, least(inner - start, INNER), a + first * a_row + start, a_row, weights,
                    more || start, c + first * c_row + panel * PANEL, c_row);
            }
        }
}

/* ---- what both directions share ---- */

INLINE float hyperbolic_tangent(float x) /* (e^2x − 1) / (e^2x + 1), right to 3 in 10^7 also where it is small */
{
    const float magic = 12582912.0f; /* as in `exponential` */
    x = x < -10.0f ? -10.0f : x;
    x = x > 10.0f ? 10.0f : x;
    union { float f; uint32_t bits; } shifted = {x * 2.88539008f + magic}, power;
    float n = shifted.f - magic, r = (2.0f * x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = r * (1.0f + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f
        + r * 0.00138888889f)))));
    power.bits = (shifted.bits << 23) + (127u << 23);
    float less = power.f * p + (power.f - 1.0f);
    return less / (less + 2.0f);
}

/* Units that are computed together; beyond the last they are zero. */
INLINE void fetch(size_t count, const float *from, float to[PANEL])
{
    if (count == PANEL) memcpy(to, from, PANEL * sizeof(float));
    else {
        memset(to, 0, PANEL * sizeof(float));
        memcpy(to, from, count * sizeof(float));
    }
}

INLINE void put(size_t count, const float from[PANEL], float *to)
{
    if (count == PANEL) memcpy(to, from, PANEL * sizeof(float));
    else memcpy(to, from, count * sizeof(float));
}

/* The lines of a job: every so many of them, longest first, so that all jobs have about as much to do. */
typedef struct { const Recurrence *given; size_t first, step, lines, longest; } Job;

static Job choose_lines(const Recurrence *given, size_t job, size_t jobs)
{
    size_t lines = (size_t)given->lines, mine = lines > job ? (lines - job - 1) / jobs + 1 : 0;
    return (Job){given, job, jobs, mine, mine ? (size_t)given->counts[given->order[job]] : 0};
}

static inline size_t line_of(const Job *job, size_t i) { return (size_t)job->given->order[job->first + i * job->step]; }

/* How many lines have a token at a step. */
static size_t count_alive(const Job *job, size_t step, size_t before)
{
    while (before && (size_t)job->given->counts[line_of(job, before - 1)] <= step) before--;
    return before;
}

/* The row of a line's token at a step; the last comes first where sequences are read backwards. */
static inline size_t row_of(const Recurrence *given, size_t line, size_t step)
{
    int64_t place = given->reverse ? given->counts[line] - 1 - (int64_t)step : (int64_t)step;
    return (size_t)(given->starts[line] + place);
}

static size_t count_jobs(const Recurrence *given, int threads)
{
    size_t lines = (size_t)given->lines, jobs = most_of(1, (lines + TOGETHER - 1) / TOGETHER), crew = (size_t)threads;
    return (jobs + crew - 1) / crew * crew;
}

/* ---- forwards ---- */

/* The gates of some units of a line at a step. `product` has PANEL columns for each gate. */
static void advance_lstm(size_t count, size_t hidden, const float *product, float *gates, const float *before,
    float *memory, float *state)
{
    float own[4][PANEL], c[PANEL], h[PANEL];
    for (size_t gate = 0; gate < 4; gate++) fetch(count, gates + gate * hidden, own[gate]);
    fetch(count, before, c);
    for (size_t u = 0; u < PANEL; u++) {
        float i = logistic(own[0][u] + product[u]), f = logistic(own[1][u] + product[PANEL + u]);
        float g = hyperbolic_tangent(own[2][u] + product[2 * PANEL + u]);
        float o = logistic(own[3][u] + product[3 * PANEL + u]);
        own[0][u] = i, own[1][u] = f, own[2][u] = g, own[3][u] = o;
        c[u] = f * c[u] + i * g;
        h[u] = o * hyperbolic_tangent(c[u]);
    }
    for (size_t gate = 0; gate < 4; gate++) put(count, own[gate], gates + gate * hidden);
    put(count, c, memory);
    put(count, h, state);
}

static void advance_gru(size_t count, size_t hidden, const float *product, float *gates, const float *before,
    const float *bias, float *recurrent, float *state)
{
    float own[3][PANEL], a[PANEL], h[PANEL];
    for (size_t gate = 0; gate < 3; gate++) fetch(count, gates + gate * hidden, own[gate]);
    fetch(count, bias, a);
    fetch(count, before, h);
    for (size_t u = 0; u < PANEL; u++) {
        float r = logistic(own[0][u] + product[u]), z = logistic(own[1][u] + product[PANEL + u]);
        a[u] += product[2 * PANEL + u];
        float n = hyperbolic_tangent(own[2][u] + r * a[u]);
        own[0][u] = r, own[1][u] = z, own[2][u] = n;
        h[u] = n + z * (h[u] - n);
    }
    for (size_t gate = 0; gate < 3; gate++) put(count, own[gate], gates + gate * hidden);
    put(count, a, recurrent);
    put(count, h, state);
}

/* Some units of all lines that have a token at a step. */
static void advance(const Job *job, size_t step, size_t alive, size_t unit, const float *products, const float *zeros,
    const float *states, float *next, size_t wide)
{
    const Recurrence *given = job->given;
    size_t hidden = (size_t)given->hidden, gates = (size_t)given->gates, count = least(hidden - unit, PANEL);
    size_t parts = gates == 4 ? 2 : 1;
    for (size_t i = 0; i < alive; i++) {
        size_t line = line_of(job, i), row = row_of(given, line, step);
        const float *product = products + i * gates * PANEL, *before = zeros;
        float *own = given->values + row * gates * hidden + unit, *kept = given->kept + row * hidden + unit;
        float *state = next + i * wide + unit;
        if (gates == 4) {
            if (step) before = given->kept + row_of(given, line, step - 1) * hidden + unit;
            else if (given->initial) before = given->initial + (line * parts + 1) * hidden + unit;
            advance_lstm(count, hidden, product, own, before, kept, state);
        } else advance_gru(count, hidden, product, own, states + i * wide + unit, given->bias + unit, kept, state);
        memcpy(given->out + row * hidden + unit, state, count * sizeof(float));
    }
}

static void run_lines(const Job *job, const float *weights, float *room)
{
    const Recurrence *given = job->given;
    size_t hidden = (size_t)given->hidden, gates = (size_t)given->gates, panels = count_panels(hidden);
    size_t wide = panels * PANEL + APART, alive = job->lines, parts = gates == 4 ? 2 : 1;
    float *states = room, *next = states + job->lines * wide, *products = next + job->lines * wide;
    float *zeros = products + job->lines * gates * PANEL;
    memset(room, 0, (job->lines * (2 * wide + gates * PANEL) + hidden) * sizeof(float));
    if (given->initial)
        for (size_t i = 0; i < job->lines; i++)
            memcpy(states + i * wide, given->initial + line_of(job, i) * parts * hidden, hidden * sizeof(float));
    for (size_t step = 0; step < job->longest; step++) {
        alive = count_alive(job, step, alive);
        for (size_t panel = 0; panel < panels; panel++) {
            if (step || given->initial) /* else the products are zero */
                multiply_all(alive, gates, hidden, states, wide, weights + panel * gates * hidden * PANEL, 0, products,
                    gates * PANEL);
            advance(job, step, alive, panel * PANEL, products, zeros, states, next, wide);
        }
        float *other = states;
        states = next, next = other;
    }
}

/* Panels of U for each PANEL units, gate by gate: (gates · hidden, hidden) read by columns. */
static void lay_out_rows(const Recurrence *given, int threads, float *to)
{
    size_t hidden = (size_t)given->hidden, gates = (size_t)given->gates, panels = count_panels(hidden);
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t panel = 0; panel < panels * gates; panel++) {
        size_t unit = panel / gates * PANEL, gate = panel % gates;
        float *own = to + panel * hidden * PANEL;
        for (size_t j = 0; j < PANEL; j++) {
            const float *from = given->weight + (gate * hidden + unit + j) * hidden;
            for (size_t k = 0; k < hidden; k++) own[k * PANEL + j] = unit + j < hidden ? from[k] : 0.0f;
        }
    }
}

/* ---- backwards ---- */

/* The gradients of some units of a line at a step, into `changes` and `dense`; those of the state before, so far. */
static void return_lstm(size_t count, size_t hidden, const float *gates, const float *memory, const float *before,
    const float *grad, const float *state_grad, float *memory_grad, float *changes, float *dense)
{
    float own[4][PANEL], c[PANEL], earlier[PANEL], dh[PANEL], more[PANEL], dc[PANEL];
    for (size_t gate = 0; gate < 4; gate++) fetch(count, gates + gate * hidden, own[gate]);
    fetch(count, memory, c), fetch(count, before, earlier), fetch(count, grad, dh), fetch(count, state_grad, more);
    fetch(count, memory_grad, dc);
    for (size_t u = 0; u < PANEL; u++) {
        float i = own[0][u], f = own[1][u], g = own[2][u], o = own[3][u], t = hyperbolic_tangent(c[u]);
        dh[u] += more[u];
        dc[u] += dh[u] * o * (1.0f - t * t);
        own[0][u] = dc[u] * g * i * (1.0f - i);
        own[1][u] = dc[u] * earlier[u] * f * (1.0f - f);
        own[2][u] = dc[u] * i * (1.0f - g * g);
        own[3][u] = dh[u] * t * o * (1.0f - o);
        dc[u] *= f;
    }
    for (size_t gate = 0; gate < 4; gate++)
        put(count, own[gate], changes + gate * hidden), put(count, own[gate], dense + gate * hidden);
    put(count, dc, memory_grad);
}

/* `changes` has four parts: by the input's share of n, by r, by z, and by the state's share of n. */
static void return_gru(size_t count, size_t hidden, const float *gates, const float *recurrent, const float *before,
    const float *grad, float *state_grad, float *changes, float *dense)
{
    float own[4][PANEL], a[PANEL], earlier[PANEL], dh[PANEL], more[PANEL];
    for (size_t gate = 0; gate < 3; gate++) fetch(count, gates + gate * hidden, own[gate + 1]);
    fetch(count, recurrent, a), fetch(count, before, earlier), fetch(count, grad, dh), fetch(count, state_grad, more);
    for (size_t u = 0; u < PANEL; u++) {
        float r = own[1][u], z = own[2][u], n = own[3][u];
        dh[u] += more[u];
        float dn = dh[u] * (1.0f - z) * (1.0f - n * n);
        own[0][u] = dn;
        own[1][u] = dn * a[u] * r * (1.0f - r);
        own[2][u] = dh[u] * (earlier[u] - n) * z * (1.0f - z);
        own[3][u] = dn * r;
        dh[u] *= z;
    }
    for (size_t part = 0; part < 4; part++) put(count, own[part], changes + part * hidden);
    for (size_t gate = 0; gate < 3; gate++) put(count, own[gate + 1], dense + gate * hidden);
    put(count, dh, state_grad);
}

/* All lines that have a token at a step. */
static void return_step(const Job *job, const RecurrenceGrads *change, size_t step, size_t alive, const float *zeros,
    float *state_grads, float *memory_grads, float *dense, size_t wide)
{
    const Recurrence *given = job->given;
    size_t hidden = (size_t)given->hidden, gates = (size_t)given->gates, parts = gates == 4 ? 2 : 1;
    for (size_t i = 0; i < alive; i++) {
        size_t line = line_of(job, i), row = row_of(given, line, step);
        const float *state = zeros, *memory = zeros, *grad = change->grad ? change->grad + row * hidden : zeros;
        if (step) {
            size_t earlier = row_of(given, line, step - 1) * hidden;
            state = given->out + earlier, memory = given->kept + earlier;
        } else if (given->initial) {
            state = given->initial + line * parts * hidden;
            memory = state + hidden; /* if there is one */
        }
        memcpy(change->before + row * hidden, state, hidden * sizeof(float));
        const float *own = given->values + row * gates * hidden, *kept = given->kept + row * hidden;
        float *to = change->changes + row * 4 * hidden, *rows = dense + i * (gates * hidden + APART);
        float *state_grad = state_grads + i * wide, *memory_grad = memory_grads + i * wide;
        for (size_t u = 0; u < hidden; u += PANEL) {
            size_t count = least(hidden - u, PANEL);
            if (gates == 4)
                return_lstm(count, hidden, own + u, kept + u, memory + u, grad + u, state_grad + u, memory_grad + u,
                    to + u, rows + u);
            else
                return_gru(count, hidden, own + u, kept + u, state + u, grad + u, state_grad + u, to + u, rows + u);
        }
    }
}

static void return_lines(const Job *job, const RecurrenceGrads *change, const float *weights, float *room)
{
    const Recurrence *given = job->given;
    size_t hidden = (size_t)given->hidden, gates = (size_t)given->gates, panels = count_panels(hidden);
    size_t wide = panels * PANEL + APART, deep = gates * hidden + APART, parts = gates == 4 ? 2 : 1, alive;
    float *state_grads = room, *memory_grads = state_grads + job->lines * wide;
    float *dense = memory_grads + job->lines * wide, *zeros = dense + job->lines * deep;
    memset(room, 0, 2 * job->lines * wide * sizeof(float));
    memset(zeros, 0, hidden * sizeof(float));
    if (change->last_grad)
        for (size_t i = 0; i < job->lines; i++) {
            const float *from = change->last_grad + line_of(job, i) * parts * hidden;
            memcpy(state_grads + i * wide, from, hidden * sizeof(float));
            if (parts == 2) memcpy(memory_grads + i * wide, from + hidden, hidden * sizeof(float));
        }
    for (size_t step = job->longest; step-- > 0;) {
        alive = count_alive(job, step, job->lines);
        return_step(job, change, step, alive, zeros, state_grads, memory_grads, dense, wide);
        if (step || change->initial_grad)
            multiply_all(alive, panels, gates * hidden, dense, deep, weights, gates == 3, state_grads, wide);
    }
    if (change->initial_grad)
        for (size_t i = 0; i < job->lines; i++) {
            float *to = change->initial_grad + line_of(job, i) * parts * hidden;
            memcpy(to, state_grads + i * wide, hidden * sizeof(float));
            if (parts == 2) memcpy(to + hidden, memory_grads + i * wide, hidden * sizeof(float));
        }
}

/* Panels of U for each PANEL inputs: its rows, as they are. */
static void lay_out_columns(const Recurrence *given, int threads, float *to)
{
    size_t hidden = (size_t)given->hidden, inner = (size_t)given->gates * hidden, panels = count_panels(hidden);
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (size_t panel = 0; panel < panels; panel++) {
        size_t first = panel * PANEL, count = least(hidden - first, PANEL);
        float *own = to + panel * inner * PANEL;
        memset(own, 0, inner * PANEL * sizeof(float));
        for (size_t k = 0; k < inner; k++)
            memcpy(own + k * PANEL, given->weight + k * hidden + first, count * sizeof(float));
    }
}

/* ---- both, in jobs ---- */

static int run_jobs(int threads, const Recurrence *given, const RecurrenceGrads *change)
{
    size_t gates = (size_t)given->gates, padded = count_panels((size_t)given->hidden) * PANEL;
    if ((double)given->rows * given->hidden * given->hidden * given->gates <= WORTH_THREADS) threads = 1;
    size_t jobs = count_jobs(given, threads), most = ((size_t)given->lines - 1) / jobs + 1;
    size_t own = round_up(most * (2 * (padded + APART) + gates * padded + APART) + padded);
    float *weights = reserve(padded * gates * (size_t)given->hidden, sizeof(float));
    float *room = reserve((size_t)threads * own, sizeof(float));
    int status = weights && room ? OK : NO_MEMORY;
    if (status == OK) {
        if (change) lay_out_columns(given, threads, weights);
        else lay_out_rows(given, threads, weights);
        #pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
        for (size_t job = 0; job < jobs; job++) {
            Job lines = choose_lines(given, job, jobs);
            float *mine = room + (size_t)omp_get_thread_num() * own;
            if (change) return_lines(&lines, change, weights, mine);
            else run_lines(&lines, weights, mine);
        }
    }
    free(weights), free(room);
    return status;
}

/* The states of all tokens; `values`, which has the inputs' share of the gates, gets the gates. */
API int KERNEL(recur)(int threads, const Recurrence *given)
{
    return given->rows ? run_jobs(threads, given, NULL) : OK;
}

/* The gradients by the gates and by the initial states, and the state before each token. */
API int KERNEL(differentiate_recurrence)(int threads, const Recurrence *given, const RecurrenceGrads *change)
{
    return given->lines ? run_jobs(threads, given, change) : OK;
}
