/* Logs of an old journal are ordered as the second copy orders them (common/fleet/copy_log.h). Only
 * hashes of records are kept. */
#include "worker/ledger/old_journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/fleet/copy_log.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/fleet/second_copy.h"
#include "common/journal/journal.h"
#include "common/journal/scan.h"
#include "common/os/file.h"
#include "common/os/task.h"
#include "worker/ledger/ledger.h"
#include "worker/session/store/session.h"

/* --- records --- */

/* A session in an old journal, and what the store has of it. */
struct old_log {
    struct copy_log *log; /* numbers of its needed records */
    VEC(uint64_t) hashes; /* of all its records */
    VEC(bool) awaited;    /* whether an answer waited for the record */
    bool begins, ended;   /* the first record is its beginning; it has an end */
    bool stored;          /* the store has a log: */
    uint64_t first, next; /* its records are first .. next-1 */
};

static struct old_log *get_log(struct old_journal *f, struct str session)
{
    struct old_log *l = map_get(&f->logs, session);

    if (!l) {
        l = mem_zalloc(sizeof(*l));
        l->log = copy_log_new(NULL, session);
        (void)map_set(&f->logs, copy_log_id(l->log), l);
    }
    return l;
}

/* Forgets what came before the beginning of a session. */
static void begin_log(struct old_log *l)
{
    vec_done(&l->log->numbers);
    vec_done(&l->log->fragments);
    vec_clear(&l->hashes);
    vec_clear(&l->awaited);
    l->begins = true;
    l->ended = false;
}

static void add_record(struct old_log *l, const struct copy_role *role, struct str payload,
                       bool is_awaited)
{
    (void)copy_log_add(l->log, role, (uint32_t)l->hashes.n);
    *vec_push(&l->hashes) = str_hash(payload, 0);
    *vec_push(&l->awaited) = is_awaited;
}

/* A record of the dispatcher: JSON, whose member `t` is its kind (dispatcher/book_record.h). */
static void add_group_record(struct old_journal *f, const struct scan_record *r)
{
    static const struct copy_role plain = {0};
    struct old_log *l = get_log(f, r->id);
    const struct json *v = NULL;
    struct arena a = {0};
    struct str kind;
    struct err e;

    (void)json_parse(&a, r->payload, &v, &e);
    kind = json_string(json_get(v, "t"));
    if (str_eq_c(kind, "group") && !json_is_true(json_get(v, "continues")))
        begin_log(l);
    l->ended = str_eq_c(kind, "acked");
    add_record(l, &plain, r->payload,
               !str_eq_c(kind, "told") && !str_eq_c(kind, "deadline") &&
                   !str_eq_c(kind, "returned"));
    arena_done(&a);
}

static void on_record(void *ctx, const struct scan_record *r)
{
    struct old_journal *f = ctx;
    const char *kind = session_record_kind(r->payload);
    struct copy_role role;
    struct old_log *l;

    if (f->index == FLEET_DISPATCHER) {
        add_group_record(f, r);
        return;
    }
    if (!kind || str_eq_c(r->id, JOURNAL_NOTE))
        return;
    l = get_log(f, r->id);
    if (strcmp(kind, "create") == 0)
        begin_log(l);
    l->ended = l->ended || strcmp(kind, "end") == 0;
    role = ledger_read_role(r->payload, l->log->fragments.n > 0);
    add_record(l, &role, r->payload, session_record_is_awaited(r->payload));
}

/* Damaged bytes were reported when the journal was open. */
static void on_damage(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    (void)ctx, (void)segment, (void)offset, (void)bytes, (void)last;
}

/* Returns the time of the last change of a segment, in ms; 0: there is none. Sets errno. Other
 * files do not count: a comparison that was cut off leaves a newer one. */
static uint64_t find_last_change(DIR *d)
{
    const struct dirent *entry;
    uint64_t newest = 0;
    struct stat st;

    while ((entry = file_next_entry(d))) {
        if (!str_starts(str_cstr(entry->d_name), STR("seg-")))
            continue;
        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            break;
        newest = MAX_OF(newest, (uint64_t)st.st_mtime * 1000);
    }
    return newest;
}

static bool lacks_manifest(DIR *d)
{
    struct stat st;

    return fstatat(dirfd(d), "MANIFEST", &st, 0) != 0 && errno == ENOENT;
}

/* Measures the time since the last change of the journal. Returns 1 if the folder has no journal:
 * the place was claimed, but no process of it began. */
static int measure_age(const char *path, uint64_t *ret_ms, struct err *e)
{
    DIR *d = opendir(path);
    uint64_t now = clock_wall_ms(), newest;
    int rc;

    if (!d)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    newest = find_last_change(d);
    rc = errno ? err_sys(e, ERR_IO, "cannot read %s", path) : newest == 0 && lacks_manifest(d);
    (void)closedir(d);
    *ret_ms = now > newest ? now - newest : 0;
    return rc;
}

int old_journal_read(void *ctx, void *tool, struct err *e)
{
    static const struct scan_events events = {.record = on_record, .damage = on_damage};
    struct old_journal *f = ctx;
    int rc = measure_age(f->path, &f->age_ms, e);

    (void)tool;
    if (rc > 0)
        return 0;
    return rc < 0 ? -1 : scan_journal(f->path, &events, f, e);
}

/* --- the store --- */

/* One call to the store. If the task is cancelled before the answer, the answer frees it. */
struct store_question {
    struct waiter waiter;
    store_answer_fn use; /* gets the answer, whatever its verdict; NULL: the task was cancelled */
    void *ctx;
    enum store_verdict verdict;
};

static void on_store_answer(void *ctx, const struct store_answer *a)
{
    struct store_question *q = ctx;

    if (!q->use) {
        free(q);
        return;
    }
    q->verdict = a->verdict;
    q->use(q->ctx, a);
    waiter_wake(&q->waiter);
}

/* Reads the log of the session from record n on, or the lengths of all logs if the session is
 * absent. Returns -1 if the store does not answer, or the task was cancelled. */
MAY_PAUSE static int read_store(const struct old_journal *f, struct str session, uint64_t n,
                                store_answer_fn use, void *ctx)
{
    struct store_question *q = mem_zalloc(sizeof(*q));
    enum store_verdict verdict;
    struct err e;

    q->use = use;
    q->ctx = ctx;
    store_read(f->store, f->index, session, n, (struct store_call){on_store_answer, q});
    if (task_wait(&q->waiter, &e)) {
        q->use = NULL;
        return -1;
    }
    verdict = q->verdict;
    free(q);
    return verdict == STORE_DONE ? 0 : -1;
}

/* The lengths of all logs of the folder's place. */
static void use_lengths(void *ctx, const struct store_answer *a)
{
    const struct old_journal *f = ctx;

    for (size_t i = 0; i < a->n_texts; i++) {
        struct old_log *l = map_get(&f->logs, a->texts[i]);

        if (!l)
            continue;
        l->stored = true;
        l->first = a->logs[i].first;
        l->next = a->logs[i].next;
    }
}

static void use_record(void *ctx, const struct store_answer *a)
{
    *(uint64_t *)ctx = a->n_texts > 0 ? str_hash(a->texts[0], 0) : 0;
}

/* --- the comparison --- */

/* Reports whether the store has the same record n. Returns -1 if it does not answer. */
MAY_PAUSE static int compare_record(const struct old_journal *f, const struct old_log *l, size_t n,
                                    bool *ret_same)
{
    uint64_t hash = 0;

    if (read_store(f, copy_log_id(l->log), n, use_record, &hash))
        return -1;
    *ret_same = hash == l->hashes.at[l->log->numbers.at[n]];
    return 0;
}

/* Finds the first record that differs, below n. Logs that differ once differ from there on. */
MAY_PAUSE static int find_difference(const struct old_journal *f, const struct old_log *l, size_t n,
                                     size_t *ret)
{
    size_t same = 0, differs = n;
    bool is_same;

    if (n > 0 && compare_record(f, l, n - 1, &is_same))
        return -1;
    if (n == 0 || is_same) {
        *ret = n;
        return 0;
    }
    for (differs = n - 1; same < differs;) {
        size_t middle = same + (differs - same) / 2;

        if (compare_record(f, l, middle, &is_same))
            return -1;
        if (is_same)
            same = middle + 1;
        else
            differs = middle;
    }
    *ret = differs;
    return 0;
}

static void report_missing(struct old_journal *f, const struct old_log *l, size_t from)
{
    struct str id = copy_log_id(l->log);
    size_t n = 0;

    for (size_t i = from; i < l->log->numbers.n; i++)
        n += l->awaited.at[l->log->numbers.at[i]];
    if (n == 0)
        return;
    f->missing += n;
    buf_printf(&f->report, "%.*s from %zu: %zu\n", (int)id.len, id.p, from, n);
    log_error(&(struct log_scope){.session = id},
              "the fleet's store lacks records of a place that this node had", LOG_U("records", n),
              LOG_U("from", from), LOG_T("folder", f->path));
}

/* Compares one session. A session that has ended may have its last record only. */
MAY_PAUSE static int compare_log(struct old_journal *f, const struct old_log *l)
{
    size_t n = l->log->numbers.n, from = 0;

    if (!l->begins || n == 0 || (l->stored && l->first > 0) || (l->ended && !l->stored))
        return 0;
    if (!l->stored && (f->index == FLEET_DISPATCHER || f->age_ms >= f->remembered_ms)) {
        f->unjudged++;
        return 0;
    }
    if (l->stored && find_difference(f, l, (size_t)MIN_OF((uint64_t)n, l->next), &from))
        return -1;
    if (from < n)
        report_missing(f, l, from);
    return 0;
}

int old_journal_compare(struct old_journal *f)
{
    struct map_slot *slot;

    if (read_store(f, (struct str){0}, 0, use_lengths, f))
        return -1;
    for (size_t at = 0; (slot = map_next(&f->logs, &at));)
        if (compare_log(f, slot->value))
            return -1;
    return 0;
}

void old_journal_done(struct old_journal *f)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&f->logs, &at));) {
        struct old_log *l = slot->value;

        copy_log_free(l->log);
        vec_done(&l->hashes);
        vec_done(&l->awaited);
        free(l);
    }
    map_done(&f->logs);
    buf_done(&f->report);
}
