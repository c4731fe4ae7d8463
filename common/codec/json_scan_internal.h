/* Shared by the halves of the scanner: tokens (json_scan.c) and arrays (json_scan_bulk.c). */
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

/* Answers 0 and puts the unread bytes aside. */
int json_scan_more(struct json_scan *s);

/* Answers -1 with the place. */
int json_scan_fail(const struct json_scan *s, struct err *e, const char *what);

/* Passes the colon or comma before the next key or value. 1: go on; 0, -1 as usual. *c becomes the
 * next byte. */
int json_scan_punctuation(struct json_scan *s, int *c, struct err *e);

/* Passes the bracket at the front that ends a container. */
int json_scan_close(struct json_scan *s, struct err *e);

#endif
