/*
 * struct sse: a pull parser of Server-Sent Events (WHATWG HTML 9.2.6), for bytes cut anywhere. Data
 * is returned as it arrives, without copying; an event may have several runs (several `data:` lines
 * are joined by a line feed). Comments, ids, retry times and unknown fields are skipped. A zeroed
 * struct with max_event set is at the start of a stream. Pure.
 */
#ifndef RG_NET_SSE_H
#define RG_NET_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum sse_item {
    SSE_MORE,  /* *in is used up */
    SSE_DATA,  /* *ret is a run of the event's data */
    SSE_EVENT, /* the event ended; it had data */
};

enum { SSE_NAME_MAX = 47 };

struct sse {
    size_t max_event;            /* most data bytes per event */
    size_t event_bytes;          /* bytes of this event so far */
    char name[SSE_NAME_MAX + 1]; /* name of this event ("event:" line), or "" */
    uint8_t name_len;
    char field[8];
    uint8_t field_len; /* bytes of the name; more than sizeof(field): unknown */
    uint8_t state;
    uint8_t bom;  /* bytes of a byte order mark that were seen or ruled out */
    bool skip_lf; /* the line ended with CR */
    bool has_data;
    bool told; /* the event was returned: its name is cleared at the next call */
};

/* Takes bytes off *in until there is an item to return: an enum sse_item, or -1 with
 * ERR_ENGINE_INVALID if an event is too large. */
int sse_next(struct sse *s, struct str *in, struct str *ret, struct err *e);

#endif
