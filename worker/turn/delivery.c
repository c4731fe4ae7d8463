#include "worker/turn/delivery.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { KEY_MAX = 16 + 128 };

struct delivery {
    struct delivery *next, *prev;
    size_t key_len;
    uint64_t brief;    /* hash of key, what notes hold */
    char key[KEY_MAX]; /* hash, session id */
};

static struct str key_of(char out[KEY_MAX], struct str session_id, const uint64_t hash[2])
{
    size_t n = session_id.len < KEY_MAX - 16 ? session_id.len : KEY_MAX - 16;

    memcpy(out, hash, 16);
    memcpy(out + 16, session_id.p, n);
    return str_of(out, 16 + n);
}

static void forget(struct deliveries *d, struct delivery *v)
{
    (void)map_take(&d->by_key, str_of(v->key, v->key_len));
    (void)map_take(&d->by_brief, str_of((const char *)&v->brief, sizeof(v->brief)));
    if (v->prev)
        v->prev->next = v->next;
    else
        d->first = v->next;
    if (v->next)
        v->next->prev = v->prev;
    else
        d->last = v->prev;
    d->n--;
    free(v);
}

void deliveries_open(struct deliveries *d, struct str session_id, const uint64_t hash[2])
{
    struct delivery *v = mem_zalloc(sizeof(*v));
    struct str key = key_of(v->key, session_id, hash);

    v->key_len = key.len;
    if (map_get(&d->by_key, key)) {
        free(v);
        return;
    }
    if (d->n >= DELIVERY_MAX)
        forget(d, d->first);
    (void)map_set(&d->by_key, key, v);
    v->brief = str_hash(key, 0);
    (void)map_set(&d->by_brief, str_of((const char *)&v->brief, sizeof(v->brief)), v);
    v->prev = d->last;
    if (d->last)
        d->last->next = v;
    else
        d->first = v;
    d->last = v;
    d->n++;
}

void deliveries_close(struct deliveries *d, struct str session_id, const uint64_t hash[2])
{
    char key[KEY_MAX];
    struct delivery *v = map_get(&d->by_key, key_of(key, session_id, hash));

    if (!v)
        return;
    buf_add(&d->note, &v->brief, sizeof(v->brief));
    forget(d, v);
}

void deliveries_take_note(struct deliveries *d, struct buf *note)
{
    buf_add_str(note, buf_str(&d->note));
    buf_clear(&d->note);
}

void deliveries_replay_note(struct deliveries *d, struct str note)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= note.len; at += sizeof(uint64_t)) {
        struct delivery *v = map_get(&d->by_brief, str_sub(note, at, sizeof(uint64_t)));

        if (v)
            forget(d, v);
    }
}

bool deliveries_missing(const struct deliveries *d, struct str session_id, const uint64_t hash[2])
{
    char key[KEY_MAX];

    return map_get(&d->by_key, key_of(key, session_id, hash)) != NULL;
}

void deliveries_done(struct deliveries *d)
{
    while (d->first)
        forget(d, d->first);
    map_done(&d->by_key);
    map_done(&d->by_brief);
    buf_done(&d->note);
}
