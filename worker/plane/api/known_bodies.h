/*
 * struct known_bodies: the beginnings of the last requests of each session (known_body.h), so that
 * the next request is read from there on. A worker keeps as many as --known-bodies-memory allows
 * (0: none), of the sessions used last. Nothing depends on what is kept.
 *
 *   known_bodies_look     on the loop: the session's known beginnings are held for one reading
 *   known_reading_work    there as well, if wanted: how much must be read
 *   known_reading_from    in the reading, if wanted: where that begins
 *   known_reading_begin   in the reading, on any thread: chooses the one with most of the body
 *   known_reading_parse   the rest is read
 *   known_reading_end     and recorded
 *   known_bodies_note     on the loop: kept for the next request
 *   known_reading_free    on the loop, at any time except while the reading runs
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
struct session;

/* A body as a whole or in fragments. */
struct body_text {
    struct str whole;
    struct str tail; /* end of the body in the request's arena, from byte tail_at on */
    size_t tail_at;
    struct str head;      /* beginning of the body, if it was known */
    const uint64_t *hash; /* str_hash128 of the whole body; 0, 0 or NULL: not computed yet */
};

/* Returns a reading for a request of that length; NULL: it is short, or there is no space.
 * `session`: the known beginning that the reading uses will share its messages; NULL: it keeps
 * its own. */
struct known_reading *known_bodies_look(struct service *a, struct str session_id,
                                        struct session *session, size_t bytes);

/* Estimates how long reading the body will take, as the bytes of an unknown body that takes as
 * long. Compares the whole body. `d` must be the same for known_reading_begin. */
size_t known_reading_work(struct known_reading *r, const struct dialect *d, struct str body);

/* Returns the state of str_hash128 after the known beginning of the body, which may be empty.
 * Errors are those of known_reading_work. */
const struct hash128 *known_reading_hashed(struct known_reading *r, const struct dialect *d,
                                           struct str body);

/* Returns the byte from which the body must be read. Otherwise like known_reading_work. */
size_t known_reading_from(struct known_reading *r, const struct dialect *d, struct str body);

/* Fills *ret with the known beginning of the body and with the rest, which is copied to the arena.
 * The arena's used bytes are set as for the whole body. The arena holds the beginning, because
 * values point into it. */
void known_reading_begin(struct known_reading *r, const struct dialect *d, struct str body,
                         struct arena *a, struct body_text *ret);

/* Parses the whole body like json_parse. */
int known_reading_parse(struct known_reading *r, struct arena *a, const struct body_text *body,
                        const struct json **ret, struct err *e);

/* Returns the messages that exist already, or NULL. */
const struct known_messages *known_reading_messages(const struct known_reading *r);

/* Returns the number of leading items of the body's list that are known to have no members without
 * effect. */
uint32_t known_reading_obeyed(const struct known_reading *r);

/* Ends the reading. keeps: it succeeded, so its result may become known. */
void known_reading_end(struct known_reading *r, struct str body, bool keeps);

/* Adds to chat->known which of the chat's messages the session's earlier requests had. Call it
 * after known_reading_end. */
void known_reading_tell(const struct known_reading *r, struct chat *chat);

void known_bodies_note(struct service *a, struct str session_id, struct known_reading *r);
void known_reading_free(struct known_reading *r);

#endif
