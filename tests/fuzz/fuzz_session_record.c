/* fuzz: rg_worker */
/*
 * session_apply on arbitrary records never crashes, and whatever it accepted can be looked at and
 * exported, and is the same after the session left memory and was read back; so it does in a store
 * that reads sessions when they are needed. Input: chunks of a type byte, a 16-bit length and
 * bytes; chunks of a record's type (commit.h) get its head in front, of type 0 they are records as
 * they are. The seeds (-runs=0) must make answers: else they are of another form than this reads.
 *
 * Exports in all formats would take most of a run. So the seeds (-runs=0) are exported
 * in each of them, and what the fuzzer tries in one, which its bytes choose.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/vec.h"
#include "tests/model/fake_model.h"
#include "worker/export/build/export.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/session_texts.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool every_format;
static size_t n_answers; /* of all inputs */

static void check_answers(void)
{
    CHECK(n_answers > 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 1; i < *argc; i++)
        every_format = every_format || strcmp((*argv)[i], "-runs=0") == 0;
    return every_format && atexit(check_answers) != 0;
}

static const struct str ID = STR_LIT("w0-0123456789abcdef0123456789abcdef");

struct records {
    VEC(struct str) all;
    struct arena arena;
};

static void add(struct records *r, unsigned type, struct str bytes)
{
    struct buf record = {0};

    if (type >= RECORD_CREATE && type <= RECORD_ROWS)
        record_begin(&record, (enum record_type)type, ID, 1000);
    buf_add_str(&record, bytes);
    *vec_push(&r->all) = arena_str(&r->arena, buf_str(&record));
    buf_done(&record);
}

/* Records that do not apply count, too: their numbers are those of the list. Long texts of every
 * second one are made before, as a helper does it. */
static void apply_all(struct session_store *st, const struct records *r)
{
    static atomic_size_t sum;
    struct err e;
    bool ended;

    for (size_t i = 0; i < r->all.n; i++) {
        struct session *s = session_find_any(st, ID, &ended);

        if (s) {
            session_load_at(s, i);
            session_pin(s);
            if (i % 2)
                CHECK(session_texts_make(s, r->all.at[i], &sum, &e) == 0);
        }
        (void)session_apply(st, r->all.at[i], &e);
        if (s) {
            session_texts_end(s);
            session_unpin(st, s);
        }
    }
}

/* A session_source. */
static int read_back(void *ctx, struct str id, const uint32_t *numbers, size_t n,
                     const struct session_reader *to, struct err *e)
{
    const struct records *r = ctx;

    (void)id;
    for (size_t i = 0; i < n; i++) {
        CHECK(numbers[i] < r->all.n);
        if (to->each(to->ctx, i, r->all.at[numbers[i]], e) != 0)
            return -1;
    }
    return 0;
}

static struct session *load(struct session_store *st, const struct records *r)
{
    bool ended;
    struct session *s = session_find_any(st, ID, &ended);

    if (!s)
        s = session_revive(st, ID, 2000);
    if (!s || session_resident(s))
        return s;
    session_load_begin(s);
    apply_all(st, r);
    CHECK(session_load_end(s, true, 2000) == 0);
    return session_find_any(st, ID, &ended);
}

/* Out of memory and back: all of it, then what no running call needs. */
static void check_eviction(struct session_store *st, const struct records *r, struct str before)
{
    struct buf after = {0};
    struct session *s;
    struct err e;

    session_store_evicts(st, true);
    CHECK(session_evict(st, 0, SIZE_MAX) >= 1); /* a raw record may have made another one */
    s = load(st, r);
    CHECK(s);
    CHECK(session_write_state(s, true, &after, &e) == 0);
    CHECK(str_eq(before, buf_str(&after)));
    session_pin(s);
    (void)session_evict(st, 0, SIZE_MAX);
    buf_clear(&after);
    CHECK(session_write_state(s, true, &after, &e) == 0);
    CHECK(str_eq(before, buf_str(&after)));
    session_unpin(st, s);
    buf_done(&after);
}

static void check_lazy(const struct session_defaults *d, const struct records *r)
{
    struct session_store *st = session_store_new(NULL, d);
    struct buf state = {0};
    struct session *s;
    struct err e;

    session_store_lazy(st, true);
    apply_all(st, r);
    session_store_lazy(st, false);
    s = load(st, r);
    if (s)
        CHECK(session_write_state(s, true, &state, &e) == 0);
    buf_done(&state);
    session_store_free(st);
}

struct evicting_out {
    struct export_out out;
    struct session_store *store;
};

static int on_pause(struct export_out *o, struct err *e)
{
    (void)e;
    buf_clear(o->bytes);
    (void)session_evict(CONTAINER_OF(o, struct evicting_out, out)->store, 0, SIZE_MAX);
    return 0;
}

static void export_as(struct session_store *st, const struct records *r, unsigned format)
{
    static char some_model;
    struct session *s;
    struct export_options o;
    struct export *x;
    struct buf out = {0};
    struct evicting_out to = {{.bytes = &out, .flow = on_pause}, st};
    struct err e;

    export_options_init(&o);
    o.format = (enum export_format)format;
    o.train_once = format & 1;
    o.merge_set = format & 2;
    o.merge = MERGE_TOKEN;
    o.select = (enum export_select)(format % 4);
    o.max_tokens = format & 4 ? 40 : 0;
    s = load(st, r);
    if (export_new(s, (const struct model *)(const void *)&some_model, NULL, &o, &x, &e) != 0)
        return;
    (void)export_write(x, &to.out, &e);
    export_free(x);
    buf_done(&out);
}

static void export_some(struct session_store *st, const struct records *r, struct str input)
{
    if (!every_format) {
        export_as(st, r, (unsigned)(str_hash(input, 0) % EXPORT_FORMAT_COUNT));
        return;
    }
    for (unsigned format = 0; format < EXPORT_FORMAT_COUNT; format++)
        export_as(st, r, format);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session_defaults d;
    struct session_store *st;
    struct buf record = {0}, state = {0};
    struct session *s;
    struct err e;
    bool ended;
    static const char *const policies[] = {"tree", "chains", "linear", "timelines"};

    struct records r = {0};

    if (size < 1)
        return 0;
    session_defaults_init(&d);
    d.history = policies[data[0] % 4];
    st = session_store_new(NULL, &d);
    session_store_source(st, read_back, &r);
    (void)session_create_record(st, ID, NULL, 1, &record, &e);
    *vec_push(&r.all) = buf_str(&record);
    for (size_t at = 1; at + 3 <= size;) {
        size_t n = data[at + 1] | (size_t)data[at + 2] << 8;

        n = n > size - at - 3 ? size - at - 3 : n;
        add(&r, data[at], str_of((const char *)data + at + 3, n));
        at += 3 + n;
    }
    apply_all(st, &r);
    s = session_find_any(st, ID, &ended);
    if (s) {
        CHECK(session_write_state(s, true, &state, &e) == 0);
        n_answers += s->forest.checkpoints.n;
        check_eviction(st, &r, buf_str(&state));
        export_some(st, &r, str_of((const char *)data, size));
    }
    check_lazy(&d, &r);
    vec_done(&r.all);
    arena_done(&r.arena);
    buf_done(&record);
    buf_done(&state);
    session_store_free(st);
    return 0;
}
