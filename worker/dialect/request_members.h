/*
 * Which members of a request its dialect knows (request_members.def), and what of a request is
 * dropped: taken without an error, as SDKs demand it, and without an effect. Pure.
 */
#ifndef RG_DIALECT_REQUEST_MEMBERS_H
#define RG_DIALECT_REQUEST_MEMBERS_H

#include <stddef.h>

#include "worker/text/request/chat_request.h"

struct arena;
struct dialect;
struct json;

enum {
    IN_CHAT = 1,
    IN_MESSAGES = 2,
    IN_RESPONSES = 4,
    IN_COMPLETIONS = 8,
    IN_ALL = 15,
};

enum { DROPPED_NAMES_MAX = 16, DROPPED_NAME_MAX = 64 };

/* A reader tells of an item of `list` (the member that it stands in) of which no model reads
 * anything: what another server sealed, or did. Counted as dropped each time, and named once, as
 * "list.KIND". */
void request_note_skipped(struct arena *a, const char *list, struct str kind,
                          struct chat_request *req);

/* Fills req->dropped from the body (a JSON object) of a request of that dialect, which its reader
 * has read: what the reader skipped, members that are not null and not read, as "name" or
 * "object.name", tools of kinds that nobody runs here, as "tools.KIND", and members in which U+FFFD
 * took the place of half a character, as "name[i].lone_surrogate". `taken`, or NULL: names
 * that somebody else obeys. The dialect's own names are looked up once for each member; without a
 * dropped one nothing is allocated. */
void request_note_dropped(struct arena *a, const struct dialect *d, const struct json *body,
                          member_taken_fn taken, struct chat_request *req);

/* A member that the reader took and that cannot be obeyed after all: dropped like the others. */
void request_note_unobeyed(struct arena *a, const char *name, struct chat_request *req);

/* What had no effect, efforts that the template does not know included, as a header's value: names
 * between commas, bytes that no header has as '?'. Absent: nothing. */
struct str request_unobeyed(struct arena *a, const struct chat_request *req);

/* The i-th member that the dialect's requests are read for, "object.name" for inner ones; NULL
 * behind the last. */
const char *request_member_at(const struct dialect *d, size_t i);

#endif
