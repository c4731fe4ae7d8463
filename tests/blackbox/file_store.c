/* A call locks the file, reads what is new, decides, appends the effects (file_lines.h), and
 * answers in the next task of the loop. */
#include "file_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "file_lines.h"

enum { LOOK_MS = 20 };

static struct file_store *store_of(struct store *s)
{
    return CONTAINER_OF(s, struct file_store, store);
}

static struct file_entry *find_place(struct file_store *s, uint32_t place)
{
    if (place == FLEET_DISPATCHER)
        return file_find_entry(s, STR("place:d"));
    return file_find_entry(s, arena_printf(&s->arena, "place:%u", (unsigned)place));
}

/* --- answers --- */

static void on_answering(struct loop_task *t)
{
    struct file_store *s = CONTAINER_OF(t, struct file_store, answering);

    for (size_t i = 0; i < s->answers.n; i++) {
        struct file_answer answer = s->answers.at[i];

        answer.call.fn(answer.call.ctx, &answer.a);
    }
    vec_clear(&s->answers);
}

/* Unlocks the file, and answers in a later task. */
static void end_call(struct file_store *s, struct store_call call, struct store_answer a)
{
    CHECK(flock(s->fd, LOCK_UN) == 0);
    *vec_push(&s->answers) = (struct file_answer){a, call};
    loop_task_post(s->loop, &s->answering, on_answering);
}

/* Counts the sessions of a place that have a log. */
static uint64_t count_logs(struct file_store *s, uint32_t place)
{
    struct str prefix = arena_printf(&s->arena, "%u/", (unsigned)place);
    struct map_slot *slot;
    uint64_t n = 0;

    for (size_t at = 0; (slot = map_next(&s->logs, &at));) {
        const struct file_log *log = slot->value;

        n += log->records.n > 0 && str_starts(log->name, prefix);
    }
    return n;
}

/* The place is whole, or begins to be restored. */
static void forget_complete(struct file_store *s, uint32_t place)
{
    struct str prefix = arena_printf(&s->arena, "%u/", (unsigned)place);
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&s->logs, &at));) {
        struct file_log *log = slot->value;

        if (!log->complete || !str_starts(log->name, prefix))
            continue;
        log->complete = false;
        file_write_log(s, log);
    }
}

/* Answers a claim. */
static void end_claim(struct file_store *s, const struct store_claim *claim, struct store_call call,
                      enum store_verdict verdict)
{
    const struct file_entry *p = find_place(s, claim->place);

    end_call(s, call,
             (struct store_answer){.verdict = verdict,
                                   .owner = p->e.owner,
                                   .epoch = p->e.epoch,
                                   .base = p->base,
                                   .beat = p->e.beat,
                                   .version = p->e.version,
                                   .whole = p->e.whole,
                                   .doubt_ms = verdict == STORE_DONE ? p->e.doubt_ms : 0,
                                   .n_logs = count_logs(s, claim->place)});
}

/* --- the functions --- */

/* Reports whether the caller had the place in a time that the store has forgotten. */
static bool is_between(const struct file_entry *p, const struct store_claim *claim)
{
    return claim->known > p->e.before && claim->known < p->e.since;
}

/* Reports whether the store does not know that the caller had the place. */
static bool forgotten(const struct file_entry *p, const struct store_claim *claim)
{
    return claim->known > p->base || is_between(p, claim);
}

/* Makes a forgotten place the caller's. */
static void restore_place(struct file_store *s, struct file_entry *p,
                          const struct store_claim *claim)
{
    if (!is_between(p, claim))
        p->e.since = p->e.epoch;
    p->e.before = claim->known;
    p->e.whole = false;
    p->base = claim->known > p->base ? claim->known : p->e.epoch - 1;
    forget_complete(s, claim->place);
}

static struct file_entry *find_server(struct file_store *s, uint64_t server)
{
    return file_find_entry(s, arena_printf(&s->arena, "servers:%llu", (unsigned long long)server));
}

/* Sets since when records of a claimed place may be missing. */
static void set_doubt(struct file_store *s, struct file_entry *p, const struct store_claim *claim)
{
    uint64_t had = claim->bare && claim->seen > p->e.epoch ? UINT64_MAX : p->server;

    if (claim->bare && had && s->server[0] && had != s->server[0] &&
        !(p->replicated && had == s->server[1] && s->server[2] == 1)) {
        if (!p->e.doubt_ms)
            p->e.doubt_ms = MAX_OF(find_server(s, had)->e.beat, MIN_OF(p->e.epoch, (uint64_t)1));
        p->e.taken = true;
    }
    if (claim->bare && forgotten(p, claim) && p->e.epoch == 0)
        p->e.taken = true;
    if (claim->bare || forgotten(p, claim) || !had)
        p->server = s->server[0];
    p->replicated = false;
}

/* Returns the newest claim that another server has, or had. One that is a day ahead of both the
 * clock and the stored one is wrong. */
static uint64_t find_newest(const struct file_entry *p, const struct store_claim *claim)
{
    uint64_t most = MAX_OF(clock_wall_ms(), p->e.epoch) + 86400000;

    return claim->seen > most ? p->told : MAX_OF(p->told, claim->seen);
}

static void file_claim(struct store *store, const struct store_claim *claim, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct file_entry *p, *block;
    uint64_t stored;

    file_begin_call(s);
    p = find_place(s, claim->place);
    block = file_find_entry(s, arena_printf(&s->arena, "block:%u", (unsigned)claim->block));
    stored = p->e.epoch;
    if (stored == 0)
        p->e.whole = true;
    if (claim->restores &&
        ((is_between(p, claim) && p->e.before == FLEET_BASE_OLDEST) ||
         (forgotten(p, claim) && stored > 0 && claim->place == FLEET_DISPATCHER))) {
        p->e.taken = true;
        file_write_entry(s, p, true);
        end_claim(s, claim, call, STORE_ALIVE);
    } else if (claim->restores && (stored > 0 || claim->seen > 0) && !forgotten(p, claim)) {
        if (stored > 0 && claim->seen > MAX_OF(stored, p->told)) {
            p->server = UINT64_MAX;
            p->told = find_newest(p, claim);
        }
        end_claim(s, claim, call, STORE_ALIVE);
    } else if (p->e.beat != claim->beat && !forgotten(p, claim)) {
        end_claim(s, claim, call, STORE_ALIVE);
    } else if (stored == 0 && !forgotten(p, claim) && !claim->incomplete &&
               !str_eq(block->e.value, claim->me)) {
        end_claim(s, claim, call, STORE_UNKNOWN);
    } else if (p->e.version > claim->reads) {
        end_claim(s, claim, call, STORE_NEWER);
    } else if (!p->e.whole && !str_eq(p->e.owner, claim->me) && !claim->incomplete &&
               !forgotten(p, claim)) {
        end_claim(s, claim, call, STORE_INCOMPLETE);
    } else {
        set_doubt(s, p, claim);
        p->e.epoch = MAX_OF(MAX_OF(stored, claim->known), clock_wall_ms());
        p->e.epoch = MAX_OF(p->e.epoch, find_newest(p, claim)) + 2;
        if (stored == 0 && !forgotten(p, claim) && !claim->incomplete) {
            p->e.before = FLEET_BASE_OLDEST;
            p->e.since = p->e.epoch;
        }
        if (forgotten(p, claim))
            restore_place(s, p, claim);
        else if (p->e.whole || !str_eq(p->e.owner, claim->me))
            p->base = p->e.epoch;
        p->e.owner = arena_str(&s->arena, claim->me);
        p->e.vacant = false;
        p->e.taken = p->e.taken || claim->incomplete ||
                     (claim->restores && claim->place == FLEET_DISPATCHER);
        p->e.beat++;
        file_write_entry(s, p, true);
        end_claim(s, claim, call, STORE_DONE);
    }
}

/* Adds the beats of all nodes. */
static void add_beats(struct file_store *s, struct store_answer *a)
{
    struct store_beat *beats = arena_calloc(&s->arena, s->entries.n, sizeof(*beats));
    struct map_slot *slot;

    a->beats = beats;
    for (size_t at = 0; (slot = map_next(&s->entries, &at));) {
        const struct store_entry *e = &((struct file_entry *)slot->value)->e;
        bool gone = e->edition > 0 && e->value.len == 0;

        if (str_starts(e->key, STR("node:")) && e->beat > 0 && !gone)
            beats[a->n_beats++] = (struct store_beat){str_sub(e->key, 5, SIZE_MAX), e->beat};
    }
}

static void file_renew(struct store *store, struct str node, const struct store_renewal *at,
                       size_t n, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct store_refusal *refused = arena_calloc(&s->arena, n, sizeof(*refused));
    struct store_answer a = {.verdict = STORE_DONE, .refused = refused};
    struct file_entry *own;

    file_begin_call(s);
    own = file_find_entry(s, arena_printf(&s->arena, "node:%.*s", (int)node.len, node.p));
    own->e.beat++;
    file_write_entry(s, own, false);
    a.server = s->server[0];
    find_server(s, a.server)->e.beat = clock_wall_ms();
    file_write_entry(s, find_server(s, a.server), false);
    a.edition = file_find_entry(s, STR("orders"))->e.edition;
    for (size_t i = 0; i < n; i++) {
        struct file_entry *p = find_place(s, at[i].place);
        bool becomes_whole = at[i].whole && !p->e.whole, newer = at[i].version > p->e.version;

        if (p->e.epoch != at[i].epoch) {
            refused[a.n_refused++] =
                (struct store_refusal){.i = i, .verdict = STORE_FENCED, .base = p->base};
            continue;
        }
        p->e.beat++;
        p->e.whole = p->e.whole || at[i].whole;
        if (becomes_whole) {
            p->base = p->e.epoch;
            forget_complete(s, at[i].place);
        }
        if (newer)
            p->e.version = at[i].version;
        if (at[i].whole && a.server && at[i].server == a.server) {
            p->server = at[i].left ? 0 : a.server;
            p->replicated = at[i].replicated;
            p->e.doubt_ms = 0;
        }
        file_write_entry(s, p, becomes_whole || newer);
    }
    add_beats(s, &a);
    end_call(s, call, a);
}

/* Adds a record. Returns how it was received. */
static enum store_verdict add_record(struct file_store *s, struct file_log *log,
                                     const struct store_record *r)
{
    if (log->records.n == 0)
        log->first = r->first;
    if (r->n > log->first + log->records.n)
        return STORE_SHORT;
    if (r->n < log->first)
        return STORE_CONFLICT;
    if (r->n < log->first + log->records.n)
        return str_eq(log->records.at[r->n - log->first], r->bytes) ? STORE_DONE : STORE_CONFLICT;
    *vec_push(&log->records) = arena_str(&s->arena, r->bytes);
    file_write_log(s, log);
    return STORE_DONE;
}

static void file_append(struct store *store, uint32_t place, uint64_t epoch,
                        const struct store_record *at, size_t n, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct store_refusal *refused = arena_calloc(&s->arena, n, sizeof(*refused));
    struct store_answer a = {.verdict = STORE_DONE, .refused = refused};
    struct file_entry *p;

    file_begin_call(s);
    p = find_place(s, place);
    for (size_t i = 0; i < n && p->e.epoch == epoch; i++) {
        struct file_log *log = file_find_log(s, place, at[i].session);
        enum store_verdict why = STORE_DONE;

        for (size_t k = 0; k < a.n_refused; k++)
            if (str_eq(at[refused[k].i].session, at[i].session))
                why = refused[k].verdict;
        if (why == STORE_DONE)
            why = add_record(s, log, &at[i]);
        if (why != STORE_DONE)
            refused[a.n_refused++] = (struct store_refusal){
                .i = i,
                .verdict = why,
                .next = log->records.n ? log->first + log->records.n : at[i].first};
        else if (at[i].last && !p->e.whole && !log->complete) {
            log->complete = true;
            file_write_log(s, log);
        }
    }
    if (p->e.epoch != epoch)
        a = (struct store_answer){.verdict = STORE_FENCED, .base = p->base};
    end_call(s, call, a);
}

static void file_drop(struct store *store, uint32_t place, uint64_t epoch,
                      const struct store_cut *cut, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct file_entry *p;
    struct file_log *log;

    file_begin_call(s);
    p = find_place(s, place);
    log = file_find_log(s, place, cut->session);
    if (p->e.epoch != epoch) {
        end_call(s, call, (struct store_answer){.verdict = STORE_FENCED, .base = p->base});
        return;
    }
    if (cut->keep && log->records.n > 1) {
        log->first += log->records.n - 1;
        log->records.at[0] = vec_last(&log->records);
        log->records.n = 1;
    } else if (!cut->keep && cut->from > log->first) {
        log->records.n = MIN_OF(log->records.n, (size_t)(cut->from - log->first));
    } else if (!cut->keep) {
        vec_clear(&log->records);
        log->complete = false;
    }
    file_write_log(s, log);
    end_call(s, call, (struct store_answer){.verdict = STORE_DONE});
}

static void read_ids(struct file_store *s, uint32_t place, struct store_answer *a)
{
    struct str *texts = arena_calloc(&s->arena, s->logs.n, sizeof(*texts));
    struct store_log *logs = arena_calloc(&s->arena, s->logs.n, sizeof(*logs));
    struct str prefix = arena_printf(&s->arena, "%u/", (unsigned)place);
    struct map_slot *slot;
    size_t at = 0;

    a->texts = texts;
    a->logs = logs;
    while ((slot = map_next(&s->logs, &at))) {
        const struct file_log *log = slot->value;

        if (log->records.n == 0 || !str_starts(log->name, prefix))
            continue;
        logs[a->n_texts] =
            (struct store_log){log->first, log->first + log->records.n, log->complete};
        texts[a->n_texts++] = str_sub(log->name, prefix.len, SIZE_MAX);
    }
}

static void file_read(struct store *store, uint32_t place, struct str session, uint64_t from,
                      struct store_call call)
{
    struct file_store *s = store_of(store);
    struct store_answer a = {.verdict = STORE_DONE};
    const struct file_log *log;
    struct str *texts;
    size_t bytes = 0;

    file_begin_call(s);
    if (!session.p) {
        read_ids(s, place, &a);
        a.server = s->server[0];
        end_call(s, call, a);
        return;
    }
    log = file_find_log(s, place, session);
    if (log->records.n > 0) {
        a.first = MAX_OF(log->first, from);
        a.next = log->first + log->records.n;
        a.texts = texts = arena_calloc(&s->arena, log->records.n, sizeof(*texts));
        for (uint64_t i = a.first; i < a.next && bytes < READ_BYTES; i++) {
            texts[a.n_texts] = log->records.at[i - log->first];
            bytes += texts[a.n_texts++].len + 1;
        }
    }
    end_call(s, call, a);
}

static void file_put(struct store *store, struct str key, struct str value, uint64_t edition,
                     struct store_call call)
{
    struct file_store *s = store_of(store);
    struct store_answer a = {.verdict = STORE_DONE};
    struct file_entry *entry;

    file_begin_call(s);
    entry = file_find_entry(s, key);
    if (edition > entry->e.edition) {
        entry->e.value = arena_str(&s->arena, value);
        entry->e.edition = edition;
        file_write_entry(s, entry, true);
    } else if (!str_eq(entry->e.value, value)) {
        a = (struct store_answer){
            .verdict = STORE_OVERTAKEN, .value = entry->e.value, .edition = entry->e.edition};
    }
    end_call(s, call, a);
}

static void file_release(struct store *store, uint32_t place, uint64_t epoch, uint64_t server,
                         struct store_call call)
{
    struct file_store *s = store_of(store);
    struct file_entry *p;

    file_begin_call(s);
    p = find_place(s, place);
    if (p->e.epoch != epoch) {
        end_call(s, call, (struct store_answer){.verdict = STORE_FENCED, .base = p->base});
        return;
    }
    p->e.owner = STR("");
    p->base = ++p->e.epoch;
    p->e.whole = true;
    p->e.vacant = count_logs(s, place) == 0;
    if (p->e.vacant || server == s->server[0])
        p->e.doubt_ms = 0;
    if (p->e.vacant || p->server == s->server[0] || server == s->server[0])
        p->server = 0;
    forget_complete(s, place);
    file_write_entry(s, p, true);
    end_call(s, call, (struct store_answer){.verdict = STORE_DONE});
}

static bool is_written(const struct file_entry *entry)
{
    return entry->e.edition > 0 || entry->e.epoch > 0;
}

/* Checks the file for changes. */
static void on_looking(struct loop_timer *t)
{
    struct file_store *s = CONTAINER_OF(t, struct file_store, looking);
    struct map_slot *slot;
    size_t at = 0;

    file_begin_call(s);
    CHECK(flock(s->fd, LOCK_UN) == 0);
    while ((slot = map_next(&s->entries, &at))) {
        struct file_entry *entry = slot->value;

        entry->e.base = entry->base;
        if (is_written(entry) && (entry->changed || !s->complete))
            s->watch(s->watch_ctx, &entry->e, NULL);
        entry->changed = false;
    }
    if (!s->complete)
        s->watch(s->watch_ctx, NULL, NULL);
    s->complete = true;
    loop_timer_set(s->loop, t, LOOK_MS, on_looking);
}

static void file_watch(struct store *store, store_watch_fn fn, void *ctx)
{
    struct file_store *s = store_of(store);

    s->watch = fn;
    s->watch_ctx = ctx;
    s->complete = false;
    loop_timer_set(s->loop, &s->looking, 1, on_looking);
}

static void file_free(struct store *store)
{
    struct file_store *s = store_of(store);
    struct map_slot *slot;
    size_t at = 0;

    on_answering(&s->answering);
    loop_task_cancel(s->loop, &s->answering);
    loop_timer_stop(s->loop, &s->looking);
    while ((slot = map_next(&s->logs, &at)))
        vec_done(&((struct file_log *)slot->value)->records);
    map_done(&s->entries);
    map_done(&s->logs);
    vec_done(&s->answers);
    arena_done(&s->arena);
    (void)close(s->fd);
    free(s);
}

static const struct store_kind file_kind = {
    .claim = file_claim,
    .renew = file_renew,
    .append = file_append,
    .drop = file_drop,
    .read = file_read,
    .put = file_put,
    .watch = file_watch,
    .release = file_release,
    .free = file_free,
};

struct store *file_store_new(struct loop *loop, const char *path)
{
    struct file_store *s = mem_zalloc(sizeof(*s));

    s->store.kind = &file_kind;
    s->loop = loop;
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(s->fd >= 0);
    return &s->store;
}
