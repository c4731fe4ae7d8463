/*
 * Reports the members of a request that a dialect knows (request_members.def), and those that are
 * dropped. A dropped member is accepted, because SDKs send it, but has no effect. Pure.
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

/* Records an item of the member `list` that no model reads, such as one that a different server
 * sealed or made. Each item counts as dropped, and each kind is named once, as "list.KIND", or as
 * "KIND" if `list` is empty. */
void request_add_skipped(struct arena *a, const char *list, struct str kind,
                         struct chat_request *req);

/* What reads members in addition to the dialect's table. */
struct member_readers {
    member_taken_fn taken; /* reports names that other layers use; or NULL */
    bool template_names;   /* the template writes `name` of users' and systems' messages */
};

/*
 * Fills req->dropped from the body (a JSON object). Call it after the dialect's parse. Dropped are:
 *   - items that the reader skipped;
 *   - members that are not read, as "name" or "object.name", unless null or a known default;
 *   - tools of kinds that do not run here, as "tools.KIND", members of others that neither prompt
 *     nor grammar has, as "tools.NAME";
 *   - unknown members of messages and parts, as "messages.NAME" or "messages.content.NAME", and
 *     names of users and systems unless the template writes them;
 *   - members in which U+FFFD replaced half a character, as "name[i].lone_surrogate".
 * Sets req->strict, too. The first n_obeyed items of the list are known to have no such members.
 * Allocates nothing if nothing is dropped.
 */
void request_find_dropped(struct arena *a, const struct dialect *d, const struct json *body,
                          uint32_t n_obeyed, struct member_readers readers,
                          struct chat_request *req);

/* Reports whether an item of the dialect's list has members without effect. */
bool request_item_drops(const struct dialect *d, const struct json *item);

/* Records a member that was read but cannot take effect. It is reported as dropped. */
void request_add_unobeyed(struct arena *a, const char *name, struct chat_request *req);

/* Returns the names of the members without effect as a header's value, separated by commas,
 * including unknown efforts of the template. Bytes that a header cannot have become '?'. Absent: no
 * such members. */
struct str request_unobeyed(struct arena *a, const struct chat_request *req);

/* Returns the i-th member that the dialect reads ("object.name" for inner ones), or NULL after the
 * last. */
const char *request_member_at(const struct dialect *d, size_t i);

/* Returns the next sampling member of the dialects (IN_...), or NULL after the last. Start with 0
 * in *at, which counts the visited rows. */
const char *request_next_sampling(unsigned dialects, size_t *at);

#endif
