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

/* Records an item of the member `list` that no model reads, such as one that another server sealed
 * or made. Counted as dropped each time, and named once, as "list.KIND". */
void request_add_skipped(struct arena *a, const char *list, struct str kind,
                         struct chat_request *req);

/* Fills req->dropped from the body (a JSON object) of a request of that dialect, after its reader.
 * Dropped are: items that the reader skipped; members that are not null and not read, as "name" or
 * "object.name"; tools of kinds that do not run here, as "tools.KIND"; and members in which U+FFFD
 * replaced half a character, as "name[i].lone_surrogate". `taken`, or NULL: names that other layers
 * use. The dialect's own names are looked up once for each member; without a dropped one nothing is
 * allocated. */
void request_find_dropped(struct arena *a, const struct dialect *d, const struct json *body,
                          member_taken_fn taken, struct chat_request *req);

/* A member that the reader took and that cannot be obeyed after all: dropped like the others. */
void request_add_unobeyed(struct arena *a, const char *name, struct chat_request *req);

/* Returns the members without effect, unknown efforts of the template included, as a header's
 * value: names between commas, bytes that a header cannot have as '?'. Absent: there are none. */
struct str request_unobeyed(struct arena *a, const struct chat_request *req);

/* Returns the i-th member that the dialect's requests are read for, "object.name" for inner ones;
 * NULL after the last. */
const char *request_member_at(const struct dialect *d, size_t i);

#endif
