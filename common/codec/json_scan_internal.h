/* What the halves of the scanner share: tokens (json_scan.c) and arrays (json_scan_bulk.c). */
#ifndef RG_CODEC_JSON_SCAN_INTERNAL_H
#define RG_CODEC_JSON_SCAN_INTERNAL_H

#include "common/codec/json_scan.h"

enum json_expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* behind [ */
    EXPECT_KEY,
    EXPECT_KEY_OR_END, /* behind { */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING, /* the document is complete */
};

/* Answers 0 and puts the unread bytes aside. */
int json_scan_more(struct json_scan *s);

/* Answers -1 with the place. */
int json_scan_fail(const struct json_scan *s, struct err *e, const char *what);

/* Passes the colon or comma that stands before the next key or value: 1 go on, else as usual.
 * *c becomes the byte at the front. */
int json_scan_punctuation(struct json_scan *s, int *c, struct err *e);

/* Passes the bracket at the front that ends a container. */
int json_scan_close(struct json_scan *s, struct err *e);

#endif
