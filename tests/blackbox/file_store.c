/*
 * The file is a list of effects, one a line, which every process replays:
 *     {"key": "place:7", "owner": "a", "epoch": 9, "beat": 1, "whole": true}
 *     {"key": "node:a", "value": "...", "edition": 1, "beat": 3}
 *     {"log": "7/w7-1", "first": 0, "records": ["..."]}
 * The value of the key "server" is what the file plays: "SERVER", or after a promotion "SERVER
 * BEFORE REPLICAS", numbers. The beat of "servers:SERVER" is the time of its last renewal. The last
 * line of a key or log is its state. A call locks the file, reads what is new, decides, appends the
 * effects, and answers in the next task of the loop.
 */
#include "file_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/os/loop.h"

enum { READ_BYTES = 1 << 20, LOOK_MS = 20 };

struct file_entry {
    struct store_entry e; /* texts are in the arena */
    uint64_t base;        /* the claim that the entry of a place stems from */
    uint64_t server;      /* of a place: the server that had all; 0: unknown */
    bool replicated;      /* of a place: each answer waited for a replica */
    bool changed;         /* not reported yet */
};

struct file_log {
    struct str name; /* "7/SESSION" */
    uint64_t first;
    bool complete;
    VEC(struct str) records;
};

struct file_answer {
    struct store_answer a;
    struct store_call call;
};

struct file_store {
    struct store store;
    struct loop *loop;
    int fd;
    uint64_t at;        /* number of replayed bytes */
    struct arena arena; /* grows while the store exists */
    struct map entries, logs;
    VEC(struct file_answer) answers;
    struct loop_task answering;
    struct loop_timer looking;
    store_watch_fn watch;
    void *watch_ctx;
    bool complete;                /* the watch has reported all entries */
    unsigned long long server[3]; /* this one, the one before, and how many replicas that one had */
};

static struct file_store *store_of(struct store *s)
{
    return CONTAINER_OF(s, struct file_store, store);
}

static struct file_entry *find_entry(struct file_store *s, struct str key)
{
    struct file_entry *entry = map_get(&s->entries, key);

    if (!entry) {
        entry = ARENA_NEW(&s->arena, struct file_entry);
        entry->e.key = arena_str(&s->arena, key);
        entry->e.owner = entry->e.value = STR("");
        map_set(&s->entries, entry->e.key, entry);
    }
    return entry;
}

static struct file_entry *find_place(struct file_store *s, uint32_t place)
{
    if (place == FLEET_DISPATCHER)
        return find_entry(s, STR("place:d"));
    return find_entry(s, arena_printf(&s->arena, "place:%u", (unsigned)place));
}

static struct file_log *find_log(struct file_store *s, uint32_t place, struct str session)
{
    struct str name =
        arena_printf(&s->arena, "%u/%.*s", (unsigned)place, (int)session.len, session.p);
    struct file_log *log = map_get(&s->logs, name);

    if (!log) {
        log = ARENA_NEW(&s->arena, struct file_log);
        log->name = name;
        map_set(&s->logs, name, log);
    }
    return log;
}

/* --- the file --- */

static uint64_t number(const struct json *v, const char *key)
{
    uint64_t n = 0;

    (void)str_to_u64(json_text(json_get(v, key)), UINT64_MAX, &n);
    return n;
}

static void replay_entry(struct file_store *s, const struct json *v)
{
    struct file_entry *entry = find_entry(s, json_string(json_get(v, "key")));

    entry->e.owner = arena_str(&s->arena, json_string(json_get(v, "owner")));
    entry->e.value = arena_str(&s->arena, json_string(json_get(v, "value")));
    entry->e.epoch = number(v, "epoch");
    entry->e.beat = number(v, "beat");
    entry->base = number(v, "base");
    entry->e.before = number(v, "before");
    entry->e.since = number(v, "since");
    entry->server = number(v, "server");
    entry->replicated = json_is_true(json_get(v, "replicated"));
    entry->e.doubt_ms = number(v, "doubt");
    entry->e.version = number(v, "version");
    entry->e.edition = number(v, "edition");
    entry->e.whole = json_is_true(json_get(v, "whole"));
    entry->e.vacant = json_is_true(json_get(v, "vacant"));
    entry->e.taken = json_is_true(json_get(v, "taken"));
    entry->changed = entry->changed || json_is_true(json_get(v, "changed"));
}

static void replay_log(struct file_store *s, const struct json *v)
{
    struct str name = json_string(json_get(v, "log"));
    size_t slash = str_find(name, STR("/"), 0);
    const struct json *records = json_get(v, "records");
    uint64_t place = 0;
    struct file_log *log;

    CHECK(str_to_u64(str_sub(name, 0, slash), UINT32_MAX, &place) == 0);
    log = find_log(s, (uint32_t)place, str_sub(name, slash + 1, SIZE_MAX));
    log->first = number(v, "first");
    log->complete = json_is_true(json_get(v, "complete"));
    vec_clear(&log->records);
    for (size_t i = 0; i < records->n; i++)
        *vec_push(&log->records) = arena_str(&s->arena, json_string(json_at(records, i)));
}

/* Locks the file and replays the effects of other processes. */
static void begin_call(struct file_store *s)
{
    struct buf text = {0};
    ssize_t n;

    CHECK(flock(s->fd, LOCK_EX) == 0);
    while ((n = pread(s->fd, buf_reserve(&text, READ_BYTES), READ_BYTES,
                      (off_t)(s->at + text.len))) > 0)
        text.len += (size_t)n;
    for (struct str rest = buf_str(&text); rest.len > 0;) {
        size_t end = str_find(rest, STR("\n"), 0);
        const struct json *v = NULL;
        struct arena a = {0};
        struct err e;

        CHECK(json_parse(&a, str_sub(rest, 0, end), &v, &e) == 0);
        if (json_get(v, "log"))
            replay_log(s, v);
        else
            replay_entry(s, v);
        arena_done(&a);
        rest = str_sub(rest, end + 1, SIZE_MAX);
    }
    s->at += text.len;
    buf_done(&text);
    (void)sscanf(arena_cstr(&s->arena, find_entry(s, STR("server"))->e.value), "%llu %llu %llu",
                 &s->server[0], &s->server[1], &s->server[2]);
}

static void write_line(struct file_store *s, struct buf *line)
{
    buf_add_c(line, '\n');
    CHECK(pwrite(s->fd, line->p, line->len, (off_t)s->at) == (ssize_t)line->len);
    s->at += line->len;
    buf_done(line);
}

static void put_number(struct json_out *o, const char *key, uint64_t value)
{
    json_out_key(o, key);
    json_out_i64(o, (int64_t)value);
}

static void write_entry(struct file_store *s, struct file_entry *entry, bool changed)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_str(&o, "key", entry->e.key);
    json_out_member_str(&o, "owner", entry->e.owner);
    json_out_member_str(&o, "value", entry->e.value);
    put_number(&o, "epoch", entry->e.epoch);
    put_number(&o, "beat", entry->e.beat);
    put_number(&o, "base", entry->base);
    put_number(&o, "before", entry->e.before);
    put_number(&o, "since", entry->e.since);
    put_number(&o, "server", entry->server);
    put_number(&o, "doubt", entry->e.doubt_ms);
    json_out_member_bool(&o, "replicated", entry->replicated);
    put_number(&o, "version", entry->e.version);
    put_number(&o, "edition", entry->e.edition);
    json_out_member_bool(&o, "whole", entry->e.whole);
    json_out_member_bool(&o, "vacant", entry->e.vacant);
    json_out_member_bool(&o, "taken", entry->e.taken);
    json_out_member_bool(&o, "changed", changed);
    json_out_end_obj(&o);
    write_line(s, &line);
    entry->changed = entry->changed || changed;
}

static void write_log(struct file_store *s, const struct file_log *log)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_str(&o, "log", log->name);
    put_number(&o, "first", log->first);
    json_out_member_bool(&o, "complete", log->complete);
    json_out_key(&o, "records");
    json_out_arr(&o);
    for (size_t i = 0; i < log->records.n; i++)
        json_out_str(&o, log->records.at[i]);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    write_line(s, &line);
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
        write_log(s, log);
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
    return find_entry(s, arena_printf(&s->arena, "servers:%llu", (unsigned long long)server));
}

/* Sets since when records of a claimed place may be missing. */
static void set_doubt(struct file_store *s, struct file_entry *p, const struct store_claim *claim)
{
    uint64_t had = p->server;

    if (claim->bare && had && s->server[0] && had != s->server[0] &&
        !(p->replicated && had == s->server[1] && s->server[2] == 1)) {
        if (!p->e.doubt_ms)
            p->e.doubt_ms = MAX_OF(find_server(s, had)->e.beat, (uint64_t)1);
        p->e.taken = p->e.taken || claim->place != FLEET_DISPATCHER;
    }
    if (claim->bare || forgotten(p, claim) || !had)
        p->server = s->server[0];
    p->replicated = false;
}

static void file_claim(struct store *store, const struct store_claim *claim, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct file_entry *p, *block;
    uint64_t stored;

    begin_call(s);
    p = find_place(s, claim->place);
    block = find_entry(s, arena_printf(&s->arena, "block:%u", (unsigned)claim->block));
    stored = p->e.epoch;
    if (stored == 0)
        p->e.whole = true;
    if (claim->restores && is_between(p, claim) && p->e.before == FLEET_BASE_OLDEST) {
        p->e.taken = true;
        write_entry(s, p, true);
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
        p->e.epoch = MAX_OF(MAX_OF(stored, claim->known), clock_wall_ms()) + 2;
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
        p->e.taken = p->e.taken || claim->incomplete;
        p->e.beat++;
        write_entry(s, p, true);
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

    begin_call(s);
    own = find_entry(s, arena_printf(&s->arena, "node:%.*s", (int)node.len, node.p));
    own->e.beat++;
    write_entry(s, own, false);
    a.server = s->server[0];
    find_server(s, a.server)->e.beat = clock_wall_ms();
    write_entry(s, find_server(s, a.server), false);
    a.edition = find_entry(s, STR("orders"))->e.edition;
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
            p->server = a.server;
            p->replicated = at[i].replicated;
            p->e.doubt_ms = 0;
        }
        write_entry(s, p, becomes_whole || newer);
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
    write_log(s, log);
    return STORE_DONE;
}

static void file_append(struct store *store, uint32_t place, uint64_t epoch,
                        const struct store_record *at, size_t n, struct store_call call)
{
    struct file_store *s = store_of(store);
    struct store_refusal *refused = arena_calloc(&s->arena, n, sizeof(*refused));
    struct store_answer a = {.verdict = STORE_DONE, .refused = refused};
    struct file_entry *p;

    begin_call(s);
    p = find_place(s, place);
    for (size_t i = 0; i < n && p->e.epoch == epoch; i++) {
        struct file_log *log = find_log(s, place, at[i].session);
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
            write_log(s, log);
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

    begin_call(s);
    p = find_place(s, place);
    log = find_log(s, place, cut->session);
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
    write_log(s, log);
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

    begin_call(s);
    if (!session.p) {
        read_ids(s, place, &a);
        a.server = s->server[0];
        end_call(s, call, a);
        return;
    }
    log = find_log(s, place, session);
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

    begin_call(s);
    entry = find_entry(s, key);
    if (edition > entry->e.edition) {
        entry->e.value = arena_str(&s->arena, value);
        entry->e.edition = edition;
        write_entry(s, entry, true);
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

    begin_call(s);
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
    write_entry(s, p, true);
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

    begin_call(s);
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
