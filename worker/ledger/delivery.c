/* Remembers committed answers that have not arrived (delivery.h). A delivery is in two chains: one
 * of all calls with its body, and one of those with the same key (or without one). It is also in
 * the list of its session, for the bound, and in the map by brief, a hash by which journal notes
 * name it.
 *
 *   by_request["w0-..|hash"]       -> call 3 -> call 7 -> call 8    (CHAIN_BODY)
 *   by_request["w0-..|hash|"]      -> call 3 -----------> call 8    (CHAIN_KEY: without a key)
 *   by_request["w0-..|hash|key a"] -----------> call 7              (CHAIN_KEY)
 *
 * So the calls that a request may mean are found at once, even if many calls with its body have
 * other keys. A commit opens a delivery, the router's confirmation closes it. Closed ones are
 * collected in `notes`, which are written to the journal from time to time. After a crash, replayed
 * commits open deliveries again, and replayed notes close those that had arrived. */

#include "worker/ledger/delivery.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/proc/ids.h"

enum { ID_MAX = 128, NAME_MAX_BYTES = 40 + ID_MAX };

/* An entry of deliveries.notes: a call whose answer has arrived. */
struct noted {
    uint32_t index; /* worker index in the session's id, which names the journal */
    uint64_t brief; /* brief of the call */
};

/* An entry of deliveries.arrived: a session, and the briefs of its calls whose answers arrived. */
struct delivery_note {
    struct buf briefs;
    size_t id_len;
    char id[];
};

enum chain_kind { CHAIN_BODY, CHAIN_KEY, CHAIN_KINDS };

/* The undelivered calls of a request; never empty. */
struct delivery_chain {
    struct list_head calls; /* delivery.in_chain[kind], oldest first */
    enum chain_kind kind;
    size_t name_len;
    char name[];
};

/* The undelivered calls of a session; never empty. */
struct delivery_owner {
    struct list_item in_class; /* in deliveries->classes */
    struct list_head calls;    /* delivery.owned, oldest first */
    size_t n;
    size_t id_len;
    char id[];
};

struct delivery {
    struct list_item owned;
    struct list_item in_chain[CHAIN_KINDS];
    struct delivery_owner *owner;
    struct delivery_chain *chain[CHAIN_KINDS];
    uint64_t call;
    uint64_t brief;
};

static struct str id_of(struct str session_id)
{
    return str_sub(session_id, 0, ID_MAX);
}

/* Computes the brief of a call. Journals contain briefs, so the function must never change. */
static uint64_t brief_of(struct str session_id, const uint64_t hash[2], uint64_t call)
{
    struct str id = id_of(session_id);
    char said[24 + ID_MAX];

    memcpy(said, &call, 8);
    memcpy(said + 8, hash, 16);
    memcpy(said + 24, id.p, id.len);
    return str_hash(str_of(said, 24 + id.len), 0);
}

static struct str brief_key(const uint64_t *brief)
{
    return str_of((const char *)brief, sizeof(*brief));
}

/* --- chains --- */

/* Makes the name of a chain in by_request. */
static struct str name_of(char out[NAME_MAX_BYTES], enum chain_kind kind, struct str session_id,
                          const uint64_t hash[2], struct str key)
{
    struct str id = id_of(session_id);
    uint64_t said[5] = {kind, hash[0], hash[1], 0, 0};

    if (kind == CHAIN_KEY &&
        key.p) /* without a key zeros, which no key has as its hash except by chance */
        str_hash128(key, said + 3);
    memcpy(out, said, sizeof(said));
    memcpy(out + sizeof(said), id.p, id.len);
    return str_of(out, sizeof(said) + id.len);
}

static struct delivery_chain *chain_for(struct deliveries *d, enum chain_kind kind, struct str name)
{
    struct delivery_chain *c = map_get(&d->by_request, name);

    if (c)
        return c;
    c = mem_zalloc(sizeof(*c) + name.len);
    c->kind = kind;
    c->name_len = name.len;
    memcpy(c->name, name.p, name.len);
    (void)map_set(&d->by_request, str_of(c->name, c->name_len), c);
    return c;
}

static const struct delivery *first_of(const struct delivery_chain *c)
{
    return c ? list_owner(&c->calls, c->calls.ends.next,
                          offsetof(struct delivery, in_chain) + c->kind * sizeof(struct list_item))
             : NULL;
}

static const struct delivery *next_of(const struct delivery *v, enum chain_kind kind)
{
    return list_owner(&v->chain[kind]->calls, v->in_chain[kind].next,
                      offsetof(struct delivery, in_chain) + kind * sizeof(struct list_item));
}

static void join_chain(struct deliveries *d, struct delivery *v, enum chain_kind kind,
                       struct str name)
{
    v->chain[kind] = chain_for(d, kind, name);
    list_append(&v->chain[kind]->calls, &v->in_chain[kind]);
}

static void leave_chain(struct deliveries *d, struct delivery *v, enum chain_kind kind)
{
    struct delivery_chain *c = v->chain[kind];

    list_remove(&v->in_chain[kind]);
    if (!list_is_empty(&c->calls))
        return;
    (void)map_take(&d->by_request, str_of(c->name, c->name_len));
    free(c);
}

/* --- sessions --- */

/* Returns the class of a session with n undelivered calls; n is 1 or more. */
static unsigned class_of(size_t n)
{
    unsigned class = 63 - (unsigned)__builtin_clzll(n);

    return MIN_OF(class, (unsigned)DELIVERY_CLASSES - 1);
}

static struct delivery_owner *owner_for(struct deliveries *d, struct str session_id)
{
    struct str id = id_of(session_id);
    struct delivery_owner *o = map_get(&d->by_session, id);

    if (o)
        return o;
    o = mem_zalloc(sizeof(*o) + id.len);
    o->id_len = id.len;
    memcpy(o->id, id.p, id.len);
    (void)map_set(&d->by_session, str_of(o->id, o->id_len), o);
    return o;
}

static void add_to_owner(struct deliveries *d, struct delivery_owner *o, struct delivery *v)
{
    v->owner = o;
    list_append(&o->calls, &v->owned);
    o->n++;
    if (o->n > 1 && class_of(o->n) == class_of(o->n - 1))
        return;
    list_remove(&o->in_class);
    list_append(&d->classes[class_of(o->n)], &o->in_class);
}

static void remove_from_owner(struct deliveries *d, struct delivery *v)
{
    struct delivery_owner *o = v->owner;

    list_remove(&v->owned);
    o->n--;
    if (o->n > 0 && class_of(o->n) == class_of(o->n + 1))
        return;
    list_remove(&o->in_class);
    if (o->n > 0) {
        list_append(&d->classes[class_of(o->n)], &o->in_class);
        return;
    }
    (void)map_take(&d->by_session, str_of(o->id, o->id_len));
    free(o);
}

/* --- all of them --- */

/* Removes the delivery from chains, list and map, and frees it. */
static void forget_delivery(struct deliveries *d, struct delivery *v)
{
    for (int kind = 0; kind < CHAIN_KINDS; kind++)
        leave_chain(d, v, (enum chain_kind)kind);
    (void)map_take(&d->by_brief, brief_key(&v->brief));
    remove_from_owner(d, v);
    d->n--;
    free(v);
}

/* Returns the oldest delivery of a session of the highest class; NULL: there is none. */
static struct delivery *to_forget(const struct deliveries *d)
{
    for (size_t i = DELIVERY_CLASSES; i-- > 0;) {
        const struct delivery_owner *o =
            LIST_FIRST_OF(&d->classes[i], struct delivery_owner, in_class);

        if (o)
            return LIST_FIRST_OF(&o->calls, struct delivery, owned);
    }
    return NULL;
}

/* Forgets a delivery first if there are DELIVERY_MAX. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                     struct str key, uint64_t call)
{
    uint64_t brief = brief_of(session_id, hash, call);
    struct delivery *v = d->n >= DELIVERY_MAX ? to_forget(d) : NULL;
    char name[NAME_MAX_BYTES];

    if (map_get(&d->by_brief, brief_key(&brief)))
        return;
    if (v)
        forget_delivery(d, v);
    v = mem_zalloc(sizeof(*v));
    v->call = call;
    v->brief = brief;
    (void)map_set(&d->by_brief, brief_key(&v->brief), v);
    for (int i = 0; i < CHAIN_KINDS; i++) {
        enum chain_kind kind = (enum chain_kind)i;

        join_chain(d, v, kind, name_of(name, kind, session_id, hash, key));
    }
    add_to_owner(d, owner_for(d, session_id), v);
    d->n++;
}

/* Adds the call to the note of its session. */
static void add_to_note(struct deliveries *d, struct str session_id, uint64_t brief)
{
    struct delivery_note *note = map_get(&d->arrived, session_id);

    if (!note) {
        note = mem_zalloc(sizeof(*note) + session_id.len);
        note->id_len = session_id.len;
        memcpy(note->id, session_id.p, session_id.len);
        (void)map_set(&d->arrived, str_of(note->id, note->id_len), note);
    }
    buf_add(&note->briefs, &brief, sizeof(brief));
}

/* Does nothing if the delivery is not known any longer. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                      uint64_t call)
{
    uint64_t brief = brief_of(session_id, hash, call);
    struct delivery *v = map_get(&d->by_brief, brief_key(&brief));
    struct noted noted = {.brief = brief};

    if (!v)
        return;
    (void)ids_parse(session_id, &noted.index);
    if (d->as_records)
        add_to_note(d, session_id, brief);
    else
        buf_add(&d->notes, &noted, sizeof(noted));
    forget_delivery(d, v);
}

void deliveries_take_notes(struct deliveries *d, delivery_note_fn fn, void *ctx)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&d->arrived, &at));) {
        struct delivery_note *note = slot->value;

        if (fn)
            fn(ctx, str_of(note->id, note->id_len), buf_str(&note->briefs));
        buf_done(&note->briefs);
        free(note);
    }
    map_done(&d->arrived);
}

/* Removes the notes that it writes. */
void deliveries_write_note(struct deliveries *d, uint32_t index, struct buf *note)
{
    size_t kept = 0;

    for (size_t at = 0; at < d->notes.len; at += sizeof(struct noted)) {
        struct noted x;

        memcpy(&x, d->notes.p + at, sizeof(x));
        if (index == UINT32_MAX || x.index == index) {
            buf_add(note, &x.brief, sizeof(x.brief));
            continue;
        }
        memcpy(d->notes.p + kept, &x, sizeof(x));
        kept += sizeof(x);
    }
    d->notes.len = kept;
}

/* Ignores notes of unknown calls. */
void deliveries_replay(struct deliveries *d, struct str note)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= note.len; at += sizeof(uint64_t)) {
        struct delivery *v = map_get(&d->by_brief, str_sub(note, at, sizeof(uint64_t)));

        if (v)
            forget_delivery(d, v);
    }
}

const struct delivery *deliveries_missing(const struct deliveries *d, struct str session_id,
                                          const uint64_t hash[2], struct str key,
                                          const struct delivery *at)
{
    enum chain_kind kind = key.p ? CHAIN_KEY : CHAIN_BODY;
    const struct delivery_chain *alike, *plain;
    char name[NAME_MAX_BYTES];
    const struct delivery *next;

    alike = map_get(&d->by_request, name_of(name, kind, session_id, hash, key));
    next = at ? next_of(at, kind) : first_of(alike);
    if (next || !key.p ||
        (at && at->chain[kind] != alike)) /* != : `at` is already one without a key */
        return next;
    plain = map_get(&d->by_request, name_of(name, CHAIN_KEY, session_id, hash, (struct str){0}));
    return first_of(plain);
}

uint64_t delivery_call(const struct delivery *v)
{
    return v->call;
}

void deliveries_done(struct deliveries *d)
{
    struct delivery *v;

    while ((v = to_forget(d)))
        forget_delivery(d, v);
    deliveries_take_notes(d, NULL, NULL);
    map_done(&d->by_request);
    map_done(&d->by_brief);
    map_done(&d->by_session);
    buf_done(&d->notes);
}
