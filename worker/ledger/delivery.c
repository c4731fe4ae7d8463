/* Which committed answers have not arrived (delivery.h). A delivery hangs in three places: the
 * list of all (oldest first, for the bound), the map by request (session and hash; the calls of
 * one request in a chain), and the map by brief, a hash by which journal notes name it.
 *
 *   by_request["w0-..|hash"] -> call 3 -> call 7       (the chain: `newer`)
 *
 * A commit opens a delivery, the router's confirmation closes it. What was closed is gathered in
 * `notes` and goes to the journal once in a while; after a crash, replayed commits open
 * deliveries again and replayed notes close those that had arrived. */

#include "worker/ledger/delivery.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/proc/ids.h"

enum { KEY_MAX = 24 + 128 };

/* One that arrived. */
struct noted {
    uint32_t index; /* the worker index in the session's id: whose journal */
    uint64_t brief; /* of the call, as notes hold it */
};

struct delivery {
    struct list_item item;  /* of deliveries->all */
    struct delivery *newer; /* the next call of the same request */
    size_t key_len;
    uint64_t brief;    /* hash of key, what notes hold */
    char key[KEY_MAX]; /* call, hash, session id */
};

/* The key of one call: request first, so that its head is the request's key. */
static struct str key_of(char out[KEY_MAX], struct str session_id, const uint64_t hash[2],
                         uint64_t call)
{
    size_t n = MIN_OF(session_id.len, (size_t)KEY_MAX - 24);

    memcpy(out, &call, 8);
    memcpy(out + 8, hash, 16);
    memcpy(out + 24, session_id.p, n);
    return str_of(out, 24 + n);
}

/* The part that all calls of one request share. */
static struct str request_of(struct str key)
{
    return str_sub(key, 8, SIZE_MAX);
}

static uint64_t call_of(const struct delivery *v)
{
    uint64_t call;

    memcpy(&call, v->key, sizeof(call));
    return call;
}

static struct str brief_key(const uint64_t *brief)
{
    return str_of((const char *)brief, sizeof(*brief));
}

/* Out of its request's list; a map's key is borrowed from the first of it. */
static void leave_request(struct deliveries *d, struct delivery *v)
{
    struct str request = request_of(str_of(v->key, v->key_len));
    struct delivery *first = map_take(&d->by_request, request), **at = &first;

    while (*at && *at != v)
        at = &(*at)->newer;
    if (*at)
        *at = v->newer;
    if (first)
        (void)map_set(&d->by_request, request_of(str_of(first->key, first->key_len)), first);
}

/* Takes it out of all three and frees it. */
static void forget(struct deliveries *d, struct delivery *v)
{
    leave_request(d, v);
    (void)map_take(&d->by_brief, brief_key(&v->brief));
    list_remove(&v->item);
    d->n--;
    free(v);
}

/* At the end of its request's chain. */
static void enter_request(struct deliveries *d, struct delivery *v)
{
    struct str request = request_of(str_of(v->key, v->key_len));
    struct delivery *at = map_get(&d->by_request, request);

    if (!at) {
        (void)map_set(&d->by_request, request, v);
        return;
    }
    while (at->newer)
        at = at->newer;
    at->newer = v;
}

/* Forgets the oldest beyond DELIVERY_MAX. */
void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                     uint64_t call)
{
    struct delivery *v = mem_zalloc(sizeof(*v));
    struct str key = key_of(v->key, session_id, hash, call);

    v->key_len = key.len;
    v->brief = str_hash(key, 0);
    if (map_get(&d->by_brief, brief_key(&v->brief))) {
        free(v);
        return;
    }
    if (d->n >= DELIVERY_MAX)
        forget(d, LIST_FIRST_OF(&d->all, struct delivery, item));
    (void)map_set(&d->by_brief, brief_key(&v->brief), v);
    enter_request(d, v);
    list_append(&d->all, &v->item);
    d->n++;
}

/* One that is not known any more is no error. */
void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2],
                      uint64_t call)
{
    char key[KEY_MAX];
    uint64_t brief = str_hash(key_of(key, session_id, hash, call), 0);
    struct delivery *v = map_get(&d->by_brief, brief_key(&brief));
    struct noted note = {.brief = brief};

    if (!v)
        return;
    (void)ids_parse(session_id, &note.index);
    buf_add(&d->notes, &note, sizeof(note));
    forget(d, v);
}

/* What was taken is not told again. */
void deliveries_take_note(struct deliveries *d, uint32_t index, struct buf *note)
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

/* Notes of calls that are not here are passed over. */
void deliveries_replay_note(struct deliveries *d, struct str note)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= note.len; at += sizeof(uint64_t)) {
        struct delivery *v = map_get(&d->by_brief, str_sub(note, at, sizeof(uint64_t)));

        if (v)
            forget(d, v);
    }
}

/* Oldest first. */
bool deliveries_missing(const struct deliveries *d, struct str session_id, const uint64_t hash[2],
                        const struct delivery **at, uint64_t *ret_call)
{
    char key[KEY_MAX];

    *at =
        *at ? (*at)->newer : map_get(&d->by_request, request_of(key_of(key, session_id, hash, 0)));
    if (*at)
        *ret_call = call_of(*at);
    return *at != NULL;
}

void deliveries_done(struct deliveries *d)
{
    struct delivery *v, *next;

    LIST_EACH_SAFE(&d->all, v, next, struct delivery, item)
        forget(d, v);
    map_done(&d->by_request);
    map_done(&d->by_brief);
    buf_done(&d->notes);
}
