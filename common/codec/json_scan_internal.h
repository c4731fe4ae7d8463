/* What the two files of the scanner share: json_scan.c reads tokens, json_scan_bulk.c arrays. */
#ifndef RG_CODEC_JSON_SCAN_INTERNAL_H
#define RG_CODEC_JSON_SCAN_INTERNAL_H

#include "common/codec/json_scan.h"

enum json_expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after [ */
    EXPECT_KEY,
    EXPECT_KEY_OR_END, /* after { */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING, /* the document is complete */
};

/* Copies the unread bytes to s->hold. Returns 0, for the caller to return. */
int json_scan_more(struct json_scan *s);

/* Fails with ERR_INVALID, `what` and the offset. Returns -1. */
int json_scan_fail(const struct json_scan *s, struct err *e, const char *what);

/* Passes the colon or comma before the next key or value. Sets *c to the byte after it, or to -1 at
 * the end of a complete document. Returns 1 to continue, 0 or -1. */
int json_scan_punctuation(struct json_scan *s, int *c, struct err *e);

/* Passes the bracket at s->at, which must match the open container. */
int json_scan_close(struct json_scan *s, struct err *e);

#endif
