/*
 * struct known_bodies: per session what its last requests began with (known_body.h), for the next
 * to be read from there. A worker keeps as much of them as --known-bodies-memory allows (0: none),
 * the sessions used last; nothing depends on what is kept.
 *
 *   known_bodies_look     on the loop: what is known of the session is held for one reading
 *   known_reading_work    there as well, if wanted: how much there is to read
 *   known_reading_from    in the reading, if wanted: where that begins
 *   known_reading_begin   in the reading, on whatever thread: the one that has most of the body
 *   known_reading_parse   the rest is read
 *   known_reading_end     and recorded
 *   known_bodies_note     on the loop: kept for the next request
 *   known_reading_free    on the loop, at any time but while the reading runs
 */
#ifndef RG_API_KNOWN_BODIES_H
#define RG_API_KNOWN_BODIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct chat;
struct dialect;
struct err;
struct json;
struct known_messages;
struct known_reading;
struct service;

/* A body, and where what was read of it lies. */
struct body_text {
    struct str whole;
    struct str tail; /* in the request's arena: its end, from byte tail_at on */
    size_t tail_at;
    struct str head;      /* its beginning, when that was known */
    const uint64_t *hash; /* str_hash128 of whole; 0, 0 or NULL: not computed yet */
};

/* For a request of that length; NULL: it is short, or there is no room. */
struct known_reading *known_bodies_look(struct service *a, struct str session_id, size_t bytes);

/* About how long reading the body will take, as bytes of one of which nothing is known. Compares
 * all of it. `d` is the same for known_reading_begin. */
size_t known_reading_work(struct known_reading *r, const struct dialect *d, struct str body);

/* Returns the state of str_hash128 after the known beginning of the body, maybe before its first
 * byte; errors as of known_reading_work. */
const struct hash128 *known_reading_hashed(struct known_reading *r, const struct dialect *d,
                                           struct str body);

/* Returns the byte from which the body must be read; as of known_reading_work. */
size_t known_reading_from(struct known_reading *r, const struct dialect *d, struct str body);

/* Fills *ret with what is known of the body and with the rest, which is copied to the arena; the
 * arena's used bytes are those of the whole. It holds what values point into. */
void known_reading_begin(struct known_reading *r, const struct dialect *d, struct str body,
                         struct arena *a, struct body_text *ret);

/* Parses the whole body like json_parse. */
int known_reading_parse(struct known_reading *r, struct arena *a, const struct body_text *body,
                        const struct json **ret, struct err *e);

/* The messages that are made already, or NULL. */
const struct known_messages *known_reading_messages(const struct known_reading *r);

/* The reading is over. `keeps`: it went well, and what it has read may be known. */
void known_reading_end(struct known_reading *r, struct str body, bool keeps);

/* Adds to chat->known which of the chat's messages the session's requests had before. Call it after
 * known_reading_end. */
void known_reading_tell(const struct known_reading *r, struct chat *chat);

void known_bodies_note(struct service *a, struct str session_id, struct known_reading *r);
void known_reading_free(struct known_reading *r);

#endif
