/*
 * The members without effect that request_find_dropped has found so far. Shared by its files.
 */
#ifndef RG_DIALECT_REQUEST_DROPPING_H
#define RG_DIALECT_REQUEST_DROPPING_H

#include "common/codec/json.h"
#include "worker/dialect/request_members.h"
#include "worker/text/request/chat_request.h"

struct arena;

enum member_use { USE_READ, USE_SAMPLING, USE_QUIET, USE_UNUSED, USE_UNKNOWN };

struct dropping {
    struct arena *a;
    unsigned dialects;
    struct member_readers readers;
    struct dropped_fields *to;
    struct json names;
};

/* Counts a dropped member and adds its name, "object.name", to the list. */
void drop_member(struct dropping *d, struct str object, struct str name, enum member_use use);

/* Records tools that the reader skips, and members of tools without effect. Sets req->strict. */
void drop_tools(struct dropping *d, const struct json *body, struct chat_request *req);

/* Records members of messages, items and parts without effect, from item `from` on, and values of
 * include. */
void drop_messages(struct dropping *d, const struct json *body, uint32_t from);

#endif
