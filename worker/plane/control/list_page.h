/* Pages of GET /sessions from a different worker or node: asks for one, and splits it into its rows
 * without parsing their values. */
#ifndef RG_CONTROL_LIST_PAGE_H
#define RG_CONTROL_LIST_PAGE_H

#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/err.h"

struct arena;
struct service_request;

struct list_answer {
    int status; /* 0: there is no answer, with the reason in err */
    struct buf body;
    struct err err;
};

/* Asks the worker of that index, or the node with that slot (the other one is NULL), with the keys
 * of r, and waits. Returns -1 if the task is cancelled. */
MAY_PAUSE int list_page_ask(const struct service_request *r, const uint32_t *index,
                            const uint32_t *slot, struct str path, struct list_answer *ret,
                            struct err *e);

/* Callbacks for the elements of a page, whose text is borrowed from it. */
struct list_page_fns {
    void (*row)(void *ctx, struct str text);
    void (*unreachable)(void *ctx, struct str text);
};

/* Calls fns for each element. *ret_cursor becomes its next_cursor, in the arena, or absent. Returns
 * -1 with e set if the text is not a page; earlier elements were passed to fns. */
int list_page_read(struct str page, struct arena *a, const struct list_page_fns *fns, void *ctx,
                   struct str *ret_cursor, struct err *e);

#endif
