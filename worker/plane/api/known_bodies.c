/*
 * The beginnings of sessions' requests (known_bodies.h): a table by session, in the order of use.
 * Those of a session that is not in memory are dropped, and those that share messages from before
 * it was evicted. A session has several, the newest first, because agents that share it take turns.
 * When the memory is full, a session that was not used for some time is dropped: requests of
 * sessions in rotation would otherwise only displace each other. A reading enlarges a body even if
 * its request fails; the sweep counts that.
 */
#include "worker/plane/api/known_bodies.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/known_body.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/service/service.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

enum {
    TIPS = 4,        /* beginnings of one session */
    REST_MS = 30000, /* time without use after which a session may be dropped for others */
    ROOM_FACTOR = 3, /* approximate bytes of memory for each byte of a body */
    LIMIT_PART = 16, /* largest share of --max-worker-memory */

    BYTES_FACTOR = 8, /* known bytes, compared with the work of one unknown byte */
    ITEM_WORK = 32,   /* work of a known item, in addition to its bytes */
    /* bytes of memory for each byte of known values: long tools have many values */
    VALUES_FACTOR = 32,
};

struct tip {
    struct known_body *body;
    size_t bytes;
};

/* The known beginnings of one session. */
struct known_session {
    struct list_item item;
    uint64_t used_ms;
    struct tip tips[TIPS]; /* the newest first */
    size_t n;
    char id[ID_TEXT_MAX];
};

struct known_bodies {
    struct map by_id;
    struct list_head all; /* least recently used first */
    size_t bytes;         /* bytes of all present beginnings */
    atomic_size_t held;   /* bytes of everything that is not freed yet */
    uint64_t readings;    /* number of readings that were begun */
};

struct known_reading {
    struct known_body *tips[TIPS]; /* the session's beginnings, held */
    size_t n;
    struct arena walks;              /* arrays of `stored` */
    const struct json *stored[TIPS]; /* the session's messages for each of tips, or NULL */
    void *holds[TIPS];               /* hold on them, or NULL */
    struct known_body *best;         /* beginning that this reading uses, the best one; or NULL */
    bool looked;                     /* `best` was chosen */
    bool works;                      /* known_body_begin was called, and known_body_end not yet */
    size_t n_items;                  /* number of items of the body that are known */
    struct known_reader by;
    struct known_part part;
    struct json_trace trace;
    struct known_kept kept;
    struct chat_known told; /* set at the end: items of the body without messages */
};

/* --- the table --- */

static void drop_tip(struct known_bodies *all, struct known_session *s, size_t i)
{
    all->bytes -= s->tips[i].bytes;
    known_body_release(s->tips[i].body);
    memmove(&s->tips[i], &s->tips[i + 1], (s->n - i - 1) * sizeof(s->tips[0]));
    s->n--;
}

/* Updates the bytes of a body. */
static void weigh_tip(struct known_bodies *all, struct tip *t)
{
    size_t bytes = known_body_bytes(t->body);

    all->bytes += bytes - t->bytes;
    t->bytes = bytes;
}

/* Drops the beginnings that keep messages which the session does not have any more: their memory is
 * in no sum. */
static void drop_outdated(struct known_bodies *all, struct known_session *s,
                          const struct session *session)
{
    for (size_t i = s->n; i-- > 0;) {
        const void *held = known_body_shared(s->tips[i].body);

        if (held && !session_has_messages(session, held))
            drop_tip(all, s, i);
    }
}

static void drop_session(struct known_bodies *all, struct known_session *s)
{
    while (s->n > 0)
        drop_tip(all, s, s->n - 1);
    list_remove(&s->item);
    (void)map_take(&all->by_id, str_cstr(s->id));
    free(s);
}

void dispatch_done(struct service *a)
{
    struct known_bodies *all = a->known;
    struct known_session *s, *next;

    if (!all)
        return;
    LIST_EACH_SAFE(&all->all, s, next, struct known_session, item)
        drop_session(all, s);
    map_done(&all->by_id);
    free(all);
    a->known = NULL;
}

static struct known_bodies *known_of(struct service *a)
{
    if (!a->known)
        a->known = mem_zalloc(sizeof(*a->known));
    return a->known;
}

/* Counts the bytes, including those that readings and calls hold. */
size_t dispatch_held_bytes(const struct service *a)
{
    return a->known ? atomic_load_explicit(&a->known->held, memory_order_relaxed) : 0;
}

/* Returns the present limit. */
static size_t limit_of(const struct service *a)
{
    uint64_t most = (uint64_t)a->config->known_bodies_memory, all = a->calls.residency->limit;

    return (size_t)(all ? MIN_OF(most, all / LIMIT_PART) : most);
}

/* Drops sessions that are not in use, the oldest first, until there is space for `bytes` more.
 * Drops none for a body that would not fit alone. */
static bool make_room(struct service *a, size_t bytes)
{
    struct known_bodies *all = known_of(a);
    size_t limit = limit_of(a);
    uint64_t now = clock_ms();

    if (bytes > limit)
        return false;
    for (;;) {
        struct known_session *s = LIST_FIRST_OF(&all->all, struct known_session, item);

        if (all->bytes <= limit && bytes <= limit - all->bytes)
            return true;
        if (!s || (all->bytes <= limit && now - s->used_ms < REST_MS))
            return false;
        drop_session(all, s);
    }
}

static struct known_session *session_of(struct known_bodies *all, struct str id)
{
    struct known_session *s = map_get(&all->by_id, id);

    if (!s) {
        s = mem_zalloc(sizeof(*s));
        memcpy(s->id, id.p, id.len);
        (void)map_set(&all->by_id, str_cstr(s->id), s);
    }
    return s;
}

/* Marks the session as used, so that it is dropped last. */
static void use_session(struct known_bodies *all, struct known_session *s)
{
    list_remove(&s->item);
    list_append(&all->all, &s->item);
    s->used_ms = clock_ms();
}

/* --- one reading --- */

/* Looks up the session's messages for a beginning that is worth sharing (share_best). */
static void find_stored(struct known_reading *r, size_t i, struct session *session)
{
    struct known_body *k = r->tips[i];

    if (!known_body_begin(k))
        return;
    if (known_body_wants_sharing(k))
        r->stored[i] = session_walked_messages(session, known_body_reading(k), &r->walks);
    known_body_end(k);
    if (r->stored[i])
        r->holds[i] = session_hold_messages(session);
}

struct known_reading *known_bodies_look(struct service *a, struct str session_id,
                                        struct session *session, size_t bytes)
{
    struct known_session *s = a->known ? map_get(&a->known->by_id, session_id) : NULL;
    struct known_reading *r;

    if (bytes < (size_t)a->config->known_bodies_least || session_id.len >= ID_TEXT_MAX ||
        limit_of(a) == 0 || !make_room(a, s ? 0 : bytes * ROOM_FACTOR))
        return NULL;
    r = mem_zalloc(sizeof(*r));
    r->by.sum = &a->known->held;
    r->by.number = ++a->known->readings;
    r->walks.sum = &a->known->held;
    s = map_get(&a->known->by_id, session_id); /* the entry may have been dropped meanwhile */
    if (s && session)
        drop_outdated(a->known, s, session);
    for (size_t i = 0; s && i < s->n; i++) {
        known_body_hold(s->tips[i].body);
        r->tips[r->n++] = s->tips[i].body;
        if (session)
            find_stored(r, i, session);
    }
    return r;
}

/* Uses the body if it has more of the request's body than those before. */
static void try_tip(struct known_reading *r, struct known_body *k, struct str body)
{
    size_t n;

    if (!known_body_begin(k))
        return;
    n = known_body_match(k, r->by.dialect, body);
    if (n <= r->n_items) {
        known_body_end(k);
        return;
    }
    if (r->best)
        known_body_end(r->best);
    r->best = k;
    r->n_items = n;
}

/* Chooses the known body that shares the longest prefix. Later calls do nothing. */
static void look(struct known_reading *r, const struct dialect *d, struct str body)
{
    if (r->looked)
        return;
    r->looked = true;
    r->by.dialect = d;
    hash128_begin(&r->part.hashed);
    for (size_t i = 0; i < r->n; i++)
        try_tip(r, r->tips[i], body);
    r->works = r->best != NULL;
    if (r->best)
        known_body_state(r->best, r->n_items, &r->part);
}

static void stop_work(struct known_reading *r)
{
    if (r->works)
        known_body_end(r->best);
    r->works = false;
}

size_t known_reading_work(struct known_reading *r, const struct dialect *d, struct str body)
{
    size_t known;

    look(r, d, body);
    known = r->part.state.bytes;
    return body.len - known + known / BYTES_FACTOR + r->n_items * ITEM_WORK +
           r->part.state.used_bytes / VALUES_FACTOR;
}

const struct hash128 *known_reading_hashed(struct known_reading *r, const struct dialect *d,
                                           struct str body)
{
    look(r, d, body);
    if (r->part.hashed.bytes >= body.len) /* the known part ends inside of a message */
        hash128_begin(&r->part.hashed);
    return &r->part.hashed;
}

size_t known_reading_from(struct known_reading *r, const struct dialect *d, struct str body)
{
    look(r, d, body);
    return r->part.state.bytes;
}

void known_reading_begin(struct known_reading *r, const struct dialect *d, struct str body,
                         struct arena *a, struct body_text *ret)
{
    size_t used = a->used_bytes;

    look(r, d, body);
    r->trace.key = str_cstr(d->list);
    *ret = (struct body_text){.whole = body};
    if (r->best) {
        known_body_hold(r->best);
        arena_hold(a, known_body_release, r->best);
        ret->head = r->part.head;
        ret->tail_at = r->part.state.bytes;
    }
    ret->tail = arena_str(a, str_sub(body, ret->tail_at, SIZE_MAX));
    /* as if the whole body had been copied */
    a->used_bytes = used + arena_rounded(body.len + 1);
}

int known_reading_parse(struct known_reading *r, struct arena *a, const struct body_text *body,
                        const struct json **ret, struct err *e)
{
    return json_parse_traced(a, body->tail, r->best ? &r->part.state : NULL, &r->trace, ret, e);
}

const struct known_messages *known_reading_messages(const struct known_reading *r)
{
    return r->best && !r->trace.twice ? &r->part.messages : NULL;
}

uint32_t known_reading_obeyed(const struct known_reading *r)
{
    return r->best && !r->trace.twice ? r->part.n_obeyed : 0;
}

/* Records the stretches; none if the list occurs twice, because the first one may be in the known
 * beginning and not be the body's list. */
static void note_stretches(struct known_reading *r)
{
    if (r->kept.body)
        known_body_stretches(r->kept.body, known_body_items(r->kept.body), &r->told);
    else if (r->best && !r->trace.twice)
        known_body_stretches(r->best, r->n_items, &r->told);
}

/* Replaces the beginning that grew by one that shares the session's messages. Here, and not on the
 * loop, because it compares or copies all of them. */
static void share_best(struct known_reading *r)
{
    struct known_body *k = r->kept.body;
    size_t i = 0;

    while (i < r->n && (r->tips[i] != k || !r->holds[i]))
        i++;
    if (i == r->n)
        return;
    r->kept.body = known_body_share(k, r->stored[i], session_release_messages, r->holds[i]);
    r->holds[i] = NULL; /* the copy has it */
    known_body_release(k);
}

void known_reading_end(struct known_reading *r, struct str body, bool keeps)
{
    if (keeps) {
        r->kept = known_body_keep(r->best, r->n_items, &r->by, body, &r->trace);
        share_best(r);
        note_stretches(r);
    }
    stop_work(r);
}

void known_reading_tell(const struct known_reading *r, struct chat *chat)
{
    if (!r->by.dialect->message)
        return;
    chat->known = r->told;
    chat->known.messages = chat->messages;
}

void known_reading_free(struct known_reading *r)
{
    if (!r)
        return;
    stop_work(r); /* the request was abandoned before it was read */
    for (size_t i = 0; i < r->n; i++) {
        known_body_release(r->tips[i]);
        if (r->holds[i])
            session_release_messages(r->holds[i]);
    }
    known_body_release(r->kept.body);
    arena_done(&r->walks);
    json_trace_done(&r->trace);
    free(r);
}

/* --- keeping the result --- */

/* Drops the beginning that the new one replaces, and returns its slot. */
static void drop_replaced(struct known_bodies *all, struct known_session *s,
                          const struct known_body *body)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->tips[i].body == body)
            drop_tip(all, s, i);
}

static void weigh_session(struct known_bodies *all, struct known_session *s)
{
    for (size_t i = 0; i < s->n; i++)
        weigh_tip(all, &s->tips[i]);
}

/* Adds the beginning that the reading has made, as the session's newest. */
static void add_tip(struct known_bodies *all, struct known_session *s, struct known_reading *r)
{
    drop_replaced(all, s, r->kept.body);
    if (r->kept.replaces)
        drop_replaced(all, s, r->best);
    if (s->n == TIPS)
        drop_tip(all, s, TIPS - 1);
    memmove(&s->tips[1], &s->tips[0], s->n * sizeof(s->tips[0]));
    s->tips[0] = (struct tip){.body = r->kept.body};
    s->n++;
    r->kept.body = NULL; /* owned by the table now */
}

void known_bodies_note(struct service *a, struct str session_id, struct known_reading *r)
{
    struct known_bodies *all = known_of(a);
    struct known_session *s =
        r->kept.body ? session_of(all, session_id) : map_get(&all->by_id, session_id);

    metrics_count(a->calls.page, METRIC_known_bytes, r->part.state.bytes);
    if (!s)
        return;
    use_session(all, s);
    if (r->kept.body)
        add_tip(all, s, r);
    weigh_session(all, s);
    (void)make_room(a, 0);
}

void dispatch_sweep(struct service *a)
{
    struct known_bodies *all = a->known;
    struct known_session *s, *next;
    const struct session *session;
    bool ended = false;

    if (!all)
        return;
    LIST_EACH_SAFE(&all->all, s, next, struct known_session, item) {
        session = session_find(a->calls.store, str_cstr(s->id), &ended);
        if (!session || !session_resident(session)) { /* its messages may be shared */
            drop_session(all, s);
            continue;
        }
        drop_outdated(all, s, session);
        weigh_session(all, s);
    }
    (void)make_room(a, 0);
}
