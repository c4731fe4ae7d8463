/* fuzz: rg_worker */
/*
 * snapshot_read on arbitrary frames never crashes, and the records that it lets in apply one by one
 * to another store, as a worker's journal gets them: a CHECK there would be the worker's end.
 * Input: the frames; with a first byte of 1 the beginning of a proper session stands in front of
 * them.
 */
#include "common/base/arena.h"
#include "common/base/check.h"
#include "tests/model/fake_model.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct str FROM = STR_LIT("w0-0123456789abcdef0123456789abcdef");
static const struct str TO = STR_LIT("w1-fedcba9876543210fedcba9876543210");

static void add_beginning(struct session_store *st, struct buf *frames)
{
    struct buf record = {0};
    struct err e;
    uint32_t n;

    CHECK(session_create_record(st, FROM, NULL, 1000, &record, &e) == 0);
    n = (uint32_t)record.len;
    buf_add(frames, &n, sizeof(n));
    buf_add_str(frames, buf_str(&record));
    buf_done(&record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session_defaults d;
    struct session_store *st;
    struct snapshot_target to = {.id = TO, .now_ms = 5000};
    struct snapshot_records records = {0};
    struct arena a = {0};
    struct buf frames = {0}, state = {0};
    struct err e = {0};
    bool ended;

    if (size < 1)
        return 0;
    session_defaults_init(&d);
    st = session_store_new(NULL, &d);
    to.trial = snapshot_trial(st);
    if (data[0] == 1)
        add_beginning(st, &frames);
    buf_add(&frames, data + 1, size - 1);
    if (snapshot_read(&to, buf_str(&frames), &a, &records, &e) == 0) {
        for (size_t i = 0; i < records.all.n; i++)
            CHECK(session_apply(st, records.all.at[i], &e) == 0);
        CHECK(session_write_state(session_find_any(st, TO, &ended), true, &state, &e) == 0);
    } else {
        CHECK(e.text[0] && (e.kind == ERR_FOREIGN || str_eq_c(str_cstr(e.param), "records")));
    }
    vec_done(&records.all);
    vec_done(&records.images);
    session_store_free(to.trial);
    arena_done(&a);
    buf_done(&frames);
    buf_done(&state);
    session_store_free(st);
    return 0;
}
