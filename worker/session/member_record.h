/*
 * An object in a record as its members: n, and n times a key and the JSON text of its value. What
 * has long values (json_long.h) is recorded so, since whoever applies it need not parse them.
 */
#ifndef RG_SESSION_MEMBER_RECORD_H
#define RG_SESSION_MEMBER_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"
#include "worker/session/record.h"

struct buf;
struct err;
struct json;

/* Whether the object is to be recorded so: some value of it is JSON_RAW. NULL is not. */
bool member_record_suits(const struct json *object);

/* Appends the object as one text of the record. */
void member_record_put(struct buf *b, const struct json *object);

/* Reads such a text, member by member. */
struct member_in {
    struct record_in r;
    uint32_t left; /* members; torn: 0, and r.bad */
};

struct member_in member_record_of(struct str text);

/* The next member, borrowed from the text. False: there is none; then r.bad tells of a torn one. */
bool member_record_next(struct member_in *m, struct str *ret_key, struct str *ret_value);

/* The whole object: long values are JSON_RAW, the others are parsed. Borrows from the text.
 * 0, or -1 and ERR_IO. */
int member_record_read(struct str text, struct arena *a, const struct json **ret, struct err *e);

/* Whether keys and values of a text that comes from elsewhere are what member_record_put writes:
 * every value is parsed. Takes as long. 0, or -1 and ERR_IO. */
int member_record_check(struct str text, struct err *e);

#endif
