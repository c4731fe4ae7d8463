/* Splits a page of GET /sessions from a different worker into its rows without parsing their
 * values. */
#ifndef RG_CONTROL_LIST_PAGE_H
#define RG_CONTROL_LIST_PAGE_H

#include "common/base/str.h"

struct arena;
struct err;

/* Calls `row` for each row, whose text is borrowed from `page`. *ret_cursor becomes its next_cursor
 * without the worker's index, in the arena, or absent. Returns -1 with e set if the text is not a
 * page; earlier rows were passed to `row`. */
int list_page_read(struct str page, struct arena *a, void (*row)(void *ctx, struct str text),
                   void *ctx, struct str *ret_cursor, struct err *e);

#endif
