/* bench: rg_worker
 * Sessions without HTTP, engine and tokenizer (a stand-in model of bytes): what remembering,
 * matching, committing and exporting cost by themselves. CPU time of the process, best of three
 * where a figure is a rate.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_clock.h"
#include "common/base/check.h"
#include "tests/model/fake_model.h"
#include "worker/export/build/export.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/text/request/chat.h"

static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long pages = 0, all = 0;

    if (f) {
        if (fscanf(f, "%lu %lu", &all, &pages) != 2)
            pages = 0;
        fclose(f);
    }
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* --- a harness --- */

struct harness {
    struct session_store *store;
    struct session *s;
    struct arena turn;
    struct buf record, request;
    uint64_t now;
    unsigned sessions, seed;
    size_t prompt; /* of the newest call */
};

static void harness_init(struct harness *h)
{
    struct session_defaults d;

    *h = (struct harness){0};
    session_defaults_init(&d);
    h->store = session_store_new(NULL, &d);
}

static void harness_done(struct harness *h)
{
    session_store_free(h->store);
    arena_done(&h->turn);
    buf_done(&h->record);
    buf_done(&h->request);
}

static void applied(struct harness *h)
{
    struct err e;

    CHECK(session_apply(h->store, buf_str(&h->record), &e) == 0);
    buf_clear(&h->record);
}

static void new_session(struct harness *h)
{
    struct err e;
    char id[64];
    bool ended;

    snprintf(id, sizeof(id), "w0-%032x", h->sessions++);
    CHECK(session_create_record(h->store, str_cstr(id), NULL, h->now, &h->record, &e) == 0);
    applied(h);
    h->s = session_find(h->store, str_cstr(id), &ended);
}

static const struct json *sampled_answer_message(struct arena *a, struct str text)
{
    struct json *m = ARENA_NEW(a, struct json);

    m->kind = JSON_OBJECT;
    m->n = 2;
    m->members = arena_calloc(a, 2, sizeof(*m->members));
    m->members[0] =
        (struct json_member){json_make_string(STR("role")), json_make_string(STR("assistant"))};
    m->members[1] = (struct json_member){json_make_string(STR("content")), json_make_string(text)};
    return m;
}

/* One call: h->request is the JSON array of messages, parsed outside of the measured part. */
static double turn(struct harness *h, struct str answer)
{
    struct chat chat = {0};
    struct session_call_input in = {.chat = &chat, .temperature = 1};
    struct session_answer a = {.finish_reason = STR_LIT("stop"), .response_id = STR_LIT("r")};
    struct session_plan *p;
    struct err e;
    double start;
    int32_t *ids;
    float *lp;

    CHECK(json_parse(&h->turn, buf_str(&h->request), &chat.messages, &e) == 0);
    ids = arena_alloc(&h->turn, (answer.len + 1) * sizeof(*ids));
    lp = arena_calloc(&h->turn, answer.len + 1, sizeof(*lp));
    for (size_t i = 0; i < answer.len; i++)
        ids[i] = (unsigned char)answer.p[i];
    for (size_t i = 0; i <= answer.len; i++) {
        h->seed = h->seed * 1664525 + 1013904223;
        lp[i] = -4.0F * (float)(h->seed >> 8) / 16777216.0F;
    }
    ids[answer.len] = FAKE_END;
    in.now_ms = ++h->now;
    in.body_hash[0] = h->now;
    start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(session_prepare(h->s, NULL, &h->turn, &in, &p, &e) == 0);
    h->prompt = p->prompt.n;
    a.ids = (struct token_span){ids, answer.len + 1};
    a.logprobs = lp;
    a.message = sampled_answer_message(&h->turn, answer);
    a.response_id = arena_printf(&h->turn, "r%lu", (unsigned long)h->now);
    CHECK(session_commit_record(p, &a, 1, h->now, &h->record, &e) == 0);
    applied(h);
    start = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    arena_reset(&h->turn);
    return start;
}

static void text(struct buf *b, size_t n, unsigned seed)
{
    static const char words[] = "the quick brown fox lists every file and reads it before lunch ";

    for (size_t i = 0; i < n; i++)
        buf_add_c(b, words[(i + seed * 7) % (sizeof(words) - 1)]);
}

static void message(struct buf *b, const char *role, size_t n, unsigned seed)
{
    if (b->len > 1)
        buf_add_c(b, ',');
    buf_printf(b, "{\"role\":\"%s\",\"content\":\"%u ", role, seed);
    text(b, n, seed);
    buf_puts(b, "\"}");
}

/* --- growing sessions --- */

static struct str answer_text(struct arena *a, unsigned k, size_t n)
{
    struct buf b = {0};
    struct str s;

    buf_printf(&b, "%u ", k);
    text(&b, n, k);
    s = arena_str(a, buf_str(&b));
    buf_done(&b);
    return s;
}

static void grow_one(struct harness *h, unsigned turns, size_t per_message, double *total,
                     double *last)
{
    struct buf history = {0};
    struct arena keep = {0};

    new_session(h);
    message(&history, "system", per_message * 4, 0);
    for (unsigned k = 0; k < turns; k++) {
        struct str answer = answer_text(&keep, k, per_message / 4);

        message(&history, k ? "tool" : "user", per_message, k);
        buf_clear(&h->request);
        buf_add_c(&h->request, '[');
        buf_add_str(&h->request, buf_str(&history));
        buf_add_c(&h->request, ']');
        *last = turn(h, answer);
        *total += *last;
        buf_puts(&history, ",{\"role\":\"assistant\",\"content\":\"");
        buf_add_str(&history, answer);
        buf_puts(&history, "\"}");
    }
    buf_done(&history);
    arena_done(&keep);
}

static void bench_growing(void)
{
    static const unsigned turns[] = {8, 64, 200};

    printf("growing sessions (1 KB tool results, 256-byte answers; byte tokens)\n");
    printf("%8s %14s %14s %14s %12s\n", "turns", "turns/CPU-s", "us/turn", "us last turn",
           "tokens");
    for (size_t i = 0; i < 3; i++) {
        double best = 1e9, last = 0;
        struct harness h;

        for (int rep = 0; rep < 3; rep++) {
            double total = 0;

            harness_init(&h);
            for (int k = 0; k < 5; k++)
                grow_one(&h, turns[i], 1024, &total, &last);
            best = total < best ? total : best;
            harness_done(&h);
        }
        printf("%8u %14.0f %14.1f %14.1f %12zu\n", turns[i], 5 * turns[i] / best,
               best * 1e6 / (5 * turns[i]), last * 1e6, h.prompt);
    }
}

static void bench_long(void)
{
    double total = 0, last = 0, best = 1e9;

    printf("\na turn on a long history (60 turns)\n%12s %14s\n", "tokens", "us/turn");
    for (int rep = 0; rep < 5; rep++) {
        struct harness h;

        harness_init(&h);
        grow_one(&h, 60, 860, &total, &last);
        best = last < best ? last : best;
        if (rep == 4)
            printf("%12zu %14.1f\n", h.prompt, best * 1e6);
        harness_done(&h);
    }
}

/* --- siblings --- */

static void siblings(const char *what, bool deep, unsigned n)
{
    struct harness h;
    size_t before, after;
    struct session_totals t;
    double total = 0;

    harness_init(&h);
    new_session(&h);
    before = resident_bytes();
    for (unsigned k = 0; k < n; k++) {
        struct arena keep = {0};

        buf_clear(&h.request);
        buf_add_c(&h.request, '[');
        message(&h.request, "system", 32768, 1);
        message(&h.request, "user", 32, deep ? k : 0);
        buf_add_c(&h.request, ']');
        total += turn(&h, answer_text(&keep, k, 64));
        arena_done(&keep);
    }
    after = resident_bytes();
    session_store_totals(h.store, &t);
    printf("%-34s %6u %10.1f %14.1f %12.2f %10.1f\n", what, n, (double)(after - before) / 1e6,
           (double)t.bytes / 1e6, (double)t.bytes / (double)(n * (uint64_t)32900), total * 1e6 / n);
    harness_done(&h);
}

/* --- matching --- */

static void bench_matching(void)
{
    static const unsigned branches[] = {1, 100, 10000};

    printf("\nmatching: extend one of N branches of an 8-message history, another one each time\n");
    printf("%10s %14s\n", "branches", "us/turn");
    for (size_t i = 0; i < 3; i++) {
        unsigned n = branches[i], reps = 2000;
        struct harness h;
        double total = 0;

        harness_init(&h);
        new_session(&h);
        for (unsigned k = 0; k < n + reps; k++) {
            struct arena keep = {0};
            unsigned which = k < n ? k : k * 7919 % n;

            buf_clear(&h.request);
            buf_add_c(&h.request, '[');
            for (unsigned m = 0; m < 7; m++)
                message(&h.request, m ? "user" : "system", 512, m);
            message(&h.request, "user", 512, 100 + which);
            if (k >= n)
                message(&h.request, "tool", 100, k);
            buf_add_c(&h.request, ']');
            if (k < n)
                (void)turn(&h, answer_text(&keep, k, 64));
            else
                total += turn(&h, answer_text(&keep, k, 64));
            arena_done(&keep);
        }
        printf("%10u %14.2f\n", n, total * 1e6 / reps);
        harness_done(&h);
    }
}

/* --- exports --- */

/* As the worker does it; the longest time between two pauses is what others wait for. */
struct timed_out {
    struct export_out out;
    struct buf bytes;
    size_t n_bytes, steps;
    double since, total, longest;
    FILE *dump;
};

static int on_pause(struct export_out *o, struct err *e)
{
    struct timed_out *t = CONTAINER_OF(o, struct timed_out, out);
    double step = clock_s(CLOCK_PROCESS_CPUTIME_ID) - t->since;

    (void)e;
    t->total += step;
    t->longest = step > t->longest ? step : t->longest;
    t->steps++;
    t->n_bytes += t->bytes.len;
    if (t->dump)
        CHECK(fwrite(t->bytes.p, 1, t->bytes.len, t->dump) == t->bytes.len);
    buf_clear(&t->bytes);
    t->since = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    return 0;
}

static void export_one(struct harness *h, const char *format, FILE *dump)
{
    struct timed_out t = {.out = {.bytes = &t.bytes, .flow = on_pause}, .dump = dump};
    struct export_options o;
    struct export *x;
    struct err e;

    export_options_init(&o);
    CHECK(export_option(&o, STR("format"), str_cstr(format), &e) == 0);
    CHECK(export_new(h->s, NULL, NULL, &o, &x, &e) == 0);
    t.since = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(export_write(x, &t.out, &e) == 0);
    (void)on_pause(&t.out, &e);
    printf("%-18s %10.1f %10.0f %10.1f %10zu %16.2f\n", format, (double)t.n_bytes / 1e6,
           (double)t.n_bytes / 1e6 / t.total, t.total * 1e3, t.steps, t.longest * 1e3);
    export_free(x);
    buf_done(&t.bytes);
}

static const char *const FORMATS[] = {"json",  "msgpack", "safetensors", "verl",           "miles",
                                      "areal", "slime",   "prime-rl",    "openai-messages"};

static void export_all(struct harness *h, const char *dump)
{
    printf("%-18s %10s %10s %10s %10s %16s\n", "format", "MB", "MB/s", "CPU ms", "steps",
           "longest step ms");
    for (size_t i = 0; i < sizeof(FORMATS) / sizeof(*FORMATS); i++) {
        FILE *f = dump && i == 0 ? fopen(dump, "w") : NULL;

        export_one(h, FORMATS[i], f);
        if (f)
            CHECK(fclose(f) == 0);
    }
}

static void bench_exports(unsigned n, const char *dump)
{
    struct harness h;

    harness_init(&h);
    new_session(&h);
    for (unsigned k = 0; k < n; k++) {
        struct arena keep = {0};

        buf_clear(&h.request);
        buf_add_c(&h.request, '[');
        message(&h.request, "system", 512, 1);
        message(&h.request, "user", 256, k);
        buf_add_c(&h.request, ']');
        (void)turn(&h, answer_text(&keep, k, 256));
        arena_done(&keep);
    }
    printf("\nexport of %u trajectories of about 1,050 tokens\n", n);
    export_all(&h, dump);
    harness_done(&h);
}

static void bench_long_export(size_t per_message)
{
    double total = 0, last = 0;
    struct harness h;

    harness_init(&h);
    grow_one(&h, 200, per_message, &total, &last);
    printf("\nexport of one trajectory of 200 turns and %zu tokens\n", h.prompt);
    export_all(&h, NULL);
    harness_done(&h);
}

/* bench_sessions [exports N FILE]: only exports, of N trajectories, the JSON also into FILE. */
int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "exports") == 0) {
        bench_exports((unsigned)strtoul(argv[2], NULL, 10), argv[3]);
        return 0;
    }
    bench_growing();
    bench_long();
    printf("\nsiblings on a 32 k-token prefix\n%-34s %6s %10s %14s %12s %10s\n", "", "n", "RSS MB",
           "allocated MB", "B/token", "us/turn");
    siblings("best of N (same prompt)", false, 1000);
    siblings("one system prompt, N questions", true, 1000);
    bench_matching();
    bench_exports(10000, NULL);
    bench_long_export(262);
    bench_long_export(4000);
    return 0;
}
