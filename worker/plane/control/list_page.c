#include "worker/plane/control/list_page.h"

#include "common/base/arena.h"
#include "common/codec/json_scan.h"

enum { CURSOR_MAX = 256 };

static int read_list(struct json_scan *p, void (*item)(void *ctx, struct str text), void *ctx,
                     struct err *e)
{
    int rc;

    if (json_scan_next(p, e) != 1 || p->token != JSON_TOKEN_ARRAY)
        return -1;
    while ((rc = json_scan_item(p, e)) == 1) {
        const char *from = p->at;

        if (json_scan_skip(p, e) != 1)
            return -1;
        item(ctx, str_of(from, (size_t)(p->at - from)));
    }
    return rc == 2 ? 0 : -1;
}

static int read_cursor(struct json_scan *p, struct arena *a, struct str *ret, struct err *e)
{
    if (json_scan_next(p, e) != 1)
        return -1;
    if (p->token == JSON_TOKEN_STRING)
        *ret = arena_str(a, p->text);
    return 0;
}

int list_page_read(struct str page, struct arena *a, const struct list_page_fns *fns, void *ctx,
                   struct str *ret_cursor, struct err *e)
{
    struct json_scan p;
    int rc = -1;

    json_scan_init(&p, CURSOR_MAX);
    json_scan_feed(&p, page);
    if (json_scan_next(&p, e) == 1 && p.token == JSON_TOKEN_OBJECT)
        rc = 0;
    while (rc == 0 && json_scan_next(&p, e) == 1 && p.token == JSON_TOKEN_KEY) {
        if (str_eq_c(p.text, "sessions"))
            rc = read_list(&p, fns->row, ctx, e);
        else if (str_eq_c(p.text, "unreachable"))
            rc = read_list(&p, fns->unreachable, ctx, e);
        else if (str_eq_c(p.text, "next_cursor"))
            rc = read_cursor(&p, a, ret_cursor, e);
        else
            rc = json_scan_skip(&p, e) == 1 ? 0 : -1;
    }
    if (rc == 0 && p.token != JSON_TOKEN_OBJECT_END)
        rc = -1;
    json_scan_done(&p);
    return rc;
}
