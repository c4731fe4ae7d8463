/* A page of GET /sessions from a different worker or node, which is split into its rows without
 * parsing their values. */
#ifndef RG_CONTROL_LIST_PAGE_H
#define RG_CONTROL_LIST_PAGE_H

#include "common/base/err.h"
#include "common/base/str.h"

struct arena;

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
