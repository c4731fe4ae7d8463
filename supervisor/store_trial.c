/* The trial uses two nodes, a and b, and one place. Each check is a list of calls with the answers
 * that they must have. A call waits for its answer (ask). */
#include "supervisor/store_trial.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/fleet/fleet_store.h"
#include "common/os/loop.h"
#include "supervisor/doctor.h"

enum {
    PLACE = 7,
    RECORD_BYTES = 4096,
    LARGE_BYTES = STORE_APPEND_MAX,
    MIDDLE = 10,
    ROUNDS = 2 * MIDDLE + 1,
    CHANGE_MS = 5000
};

static const struct str SESSION = STR_LIT("w7-trial");

struct store_trial {
    struct doctor *d;
    struct loop *loop;
    struct store *store;
    const char *check; /* name of the running check */
    bool failed;

    bool answered;
    struct store_answer got;      /* answer to the last call, without the texts that it points to */
    struct store_refusal refused; /* first refusal in the answer */
    struct buf texts;             /* texts of a read, one after the other */
    bool changed;                 /* a watch has reported `orders` */
    bool listed;                  /* a watch has reported all orders */
};

/* Returns what to do about a call that the server did not carry out, or NULL. */
static const char *cure_of(const char *why)
{
    bool forbidden = strstr(why, "permission") || strstr(why, "user executing the script");

    return forbidden ? "give the user ~rg:NAME* &rg:NAME* +@all -@dangerous +info +role" : NULL;
}

static void on_answer(void *ctx, const struct store_answer *a)
{
    struct store_trial *t = ctx;

    t->answered = true;
    t->got = *a;
    t->refused = a->n_refused ? a->refused[0] : (struct store_refusal){0};
    buf_clear(&t->texts);
    for (size_t i = 0; i < a->n_texts; i++)
        buf_add_str(&t->texts, a->texts[i]);
    if (a->why) {
        doctor_add(t->d, t->check, FINDING_ERROR, cure_of(a->why), "%s: %s",
                   store_verdict_name(a->verdict), a->why);
        t->failed = true;
    }
}

static struct store_call begin_call(struct store_trial *t)
{
    t->answered = false;
    return (struct store_call){on_answer, t};
}

/* Waits for the answer to a call and compares its verdict. `what` names the call in errors. Calls
 * nothing more after a failure. */
static void expect(struct store_trial *t, enum store_verdict want, const char *what)
{
    enum store_verdict got;

    if (t->failed)
        return;
    while (!t->answered)
        (void)loop_poll(t->loop, -1);
    got = t->refused.verdict != STORE_DONE ? t->refused.verdict : t->got.verdict;
    if (t->failed || got == want)
        return;
    doctor_add(t->d, t->check, FINDING_ERROR, "use a Redis or Valkey server, without a proxy",
               "%s: the answer is `%s` instead of `%s`", what, store_verdict_name(got),
               store_verdict_name(want));
    t->failed = true;
}

static void expect_texts(struct store_trial *t, struct str want, const char *what)
{
    expect(t, STORE_DONE, what);
    if (t->failed || str_eq(buf_str(&t->texts), want))
        return;
    doctor_add(t->d, t->check, FINDING_ERROR, "use a Redis or Valkey server, without a proxy",
               "%s: %zu bytes came back instead of %zu, or other bytes", what, t->texts.len,
               want.len);
    t->failed = true;
}

static void put(struct store_trial *t, const char *key, const char *value, uint64_t edition)
{
    if (!t->failed)
        store_put(t->store, str_cstr(key), str_cstr(value), edition, begin_call(t));
}

static void claim(struct store_trial *t, const char *me, uint64_t beat, uint64_t known)
{
    const struct store_claim c = {.place = PLACE, .me = str_cstr(me), .beat = beat, .known = known};

    if (!t->failed)
        store_claim(t->store, &c, begin_call(t));
}

static void append(struct store_trial *t, uint64_t epoch, uint64_t n, struct str bytes)
{
    const struct store_record r = {.session = SESSION, .n = n, .bytes = bytes};

    if (!t->failed)
        store_append(t->store, PLACE, epoch, &r, 1, begin_call(t));
}

static void read_texts(struct store_trial *t, struct str session, uint64_t from)
{
    if (!t->failed)
        store_read(t->store, PLACE, session, from, begin_call(t));
}

/* Claims the place for a node. Returns the epoch. */
static uint64_t try_claims(struct store_trial *t)
{
    claim(t, "a", 0, 0);
    expect(t, STORE_UNKNOWN, "a claim without the block");
    put(t, "block:0", "a", 1);
    expect(t, STORE_DONE, "a new block");
    put(t, "node:a", "a", 1);
    expect(t, STORE_DONE, "a new node");
    claim(t, "a", 0, 0);
    expect(t, STORE_DONE, "the first claim");
    return t->got.epoch;
}

static void try_records(struct store_trial *t, uint64_t epoch)
{
    struct buf large = {0};

    append(t, epoch, 0, STR("first"));
    expect(t, STORE_DONE, "the first record");
    append(t, epoch, 0, STR("first"));
    expect(t, STORE_DONE, "the same record again");
    append(t, epoch, 2, STR("third"));
    expect(t, STORE_SHORT, "a record after a hole");
    append(t, epoch, 0, STR("other"));
    expect(t, STORE_CONFLICT, "other bytes of the same record");
    for (size_t i = 0; i < LARGE_BYTES; i++)
        buf_add_c(&large, (char)(i * 7 >> 3));
    append(t, epoch, 1, buf_str(&large));
    expect(t, STORE_DONE, "a record of 1 MiB");
    read_texts(t, SESSION, 1);
    expect_texts(t, buf_str(&large), "a record of 1 MiB is read");
    read_texts(t, str_of(NULL, 0), 0);
    expect_texts(t, SESSION, "the sessions are listed");
    if (!t->failed)
        store_drop(t->store, PLACE, epoch, &(struct store_cut){.session = SESSION, .keep = true},
                   begin_call(t));
    expect(t, STORE_DONE, "records are dropped");
    buf_done(&large);
}

/* Claims the place for a second node. Returns its epoch. */
static uint64_t try_fencing(struct store_trial *t, uint64_t epoch)
{
    const struct store_renewal renewal = {.place = PLACE, .epoch = epoch, .whole = true};
    uint64_t beat;

    if (!t->failed)
        store_renew(t->store, STR("a"), &renewal, 1, begin_call(t));
    expect(t, STORE_DONE, "a beat");
    claim(t, "b", 1, 0);
    expect(t, STORE_ALIVE, "a claim of a living node's place");
    beat = t->got.beat;
    claim(t, "b", beat, 0);
    expect(t, STORE_DONE, "a claim of a lost node's place");
    append(t, epoch, 2, STR("late"));
    expect(t, STORE_FENCED, "a record of the former owner");
    claim(t, "b", beat + 1, t->got.base + 1000000);
    expect(t, STORE_DONE, "a claim after the store forgot one");
    if (!t->failed && t->got.whole)
        expect(t, STORE_INCOMPLETE, "a claim after the store forgot one, of a whole place");
    return t->got.epoch;
}

static void on_entry(void *ctx, const struct store_entry *entry, const char *why)
{
    struct store_trial *t = ctx;

    if (entry && str_eq_c(entry->key, "orders"))
        t->changed = true;
    if (!entry && !why)
        t->listed = true;
}

/* Polls until *flag, or the time is over. */
static void await_flag(struct store_trial *t, const bool *flag, const char *what)
{
    uint64_t until = clock_ms() + CHANGE_MS;

    while (!*flag && clock_ms() < until)
        (void)loop_poll(t->loop, 50);
    if (*flag || t->failed)
        return;
    doctor_add(t->d, t->check, FINDING_ERROR, "allow SUBSCRIBE for this user and its channels",
               "%s within 5 s", what);
    t->failed = true;
}

static void try_changes(struct store_trial *t)
{
    store_watch(t->store, on_entry, t);
    await_flag(t, &t->listed, "the entries were not reported");
    put(t, "orders", "one", 1);
    expect(t, STORE_DONE, "an order");
    if (!t->failed)
        await_flag(t, &t->changed, "a change was not reported");
    put(t, "orders", "two", 1);
    expect(t, STORE_OVERTAKEN, "an order that was overtaken");
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Measures how long an append takes (median). */
static void measure_append(struct store_trial *t, uint64_t epoch)
{
    uint64_t us[ROUNDS];
    struct buf record = {0};

    (void)memset(buf_reserve(&record, RECORD_BYTES), 'r', RECORD_BYTES);
    record.len = RECORD_BYTES;
    for (size_t i = 0; i < ROUNDS && !t->failed; i++) {
        us[i] = clock_us();
        append(t, epoch, 2 + i, buf_str(&record));
        expect(t, STORE_DONE, "a record");
        us[i] = clock_us() - us[i];
    }
    buf_done(&record);
    if (t->failed)
        return;
    qsort(us, ROUNDS, sizeof(us[0]), compare_times);
    doctor_add(t->d, "latency", FINDING_OK, NULL, "a record of 4 KiB takes %.2f ms",
               (double)us[MIDDLE] / 1000);
}

static void end_check(struct store_trial *t, const char *next, const char *text)
{
    if (!t->failed)
        doctor_add(t->d, t->check, FINDING_OK, NULL, "%s", text);
    t->check = next;
}

void store_trial_run(struct doctor *d, struct loop *loop, struct store *store)
{
    struct store_trial t = {.d = d, .loop = loop, .store = store, .check = "claims"};
    uint64_t epoch = try_claims(&t);

    end_check(&t, "records", "only the node of a block claims its new places");
    if (!t.failed)
        try_records(&t, epoch);
    end_check(&t, "fencing", "are appended in order, once, and read back");
    if (!t.failed)
        epoch = try_fencing(&t, epoch);
    end_check(&t, "changes", "a former owner records nothing");
    if (!t.failed)
        try_changes(&t);
    end_check(&t, "latency", "are reported, and old ones are refused");
    if (!t.failed)
        measure_append(&t, epoch);
    if (!t.failed) {
        store_release(store, PLACE, epoch, 0, begin_call(&t));
        expect(&t, STORE_DONE, "a release");
    }
    buf_done(&t.texts);
}
