/* Writes one session as a page that needs no server (html_page.h). It is the viewer's page with
 * the session's state and each branch's file as JSON. The viewer reads these instead of fetching
 * them. */

#include "worker/commands/html_page.h"

#include <stdlib.h>

#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/session/forest/branch.h"
#include "worker/viewer/assets.h"

static int write_text(FILE *to, struct str text, struct err *e)
{
    if (fwrite(text.p, 1, text.len, to) != text.len)
        return err_sys(e, ERR_IO, "cannot write");
    return 0;
}

/* Writes JSON within a page. Escapes '<', which occurs only in strings and could end the element or
 * begin another. */
static int write_json(FILE *to, struct str json, struct err *e)
{
    while (json.len > 0) {
        if (write_text(to, str_cut(&json, '<'), e) || (json.p && write_text(to, STR("\\u003c"), e)))
            return -1;
    }
    return 0;
}

static int keep_all(struct export_out *o, struct err *e)
{
    (void)o;
    (void)e;
    return 0;
}

/* Appends the branch's file, like the answer of GET /sessions/{id}/tokens. */
static int branch_bytes(struct replayed *r, struct model_scratch *scratch, struct session *s,
                        struct str end, struct buf *out, struct err *e)
{
    struct export_options o;
    struct export *x = NULL;
    int rc;

    export_options_init(&o);
    o.format = EXPORT_VIEW;
    o.select = SELECT_LAST;
    o.branch = end;
    rc = export_new(s, r->model, scratch, &o, &x, e);
    if (rc == 0)
        rc = export_write(x, &(struct export_out){.bytes = out, .flow = keep_all}, e);
    export_free(x);
    return rc;
}

/* Writes "ID":"base64 of the file". */
static int write_branch(struct replayed *r, struct model_scratch *scratch, struct session *s,
                        struct str end, FILE *to, struct err *e)
{
    struct buf bytes = {0}, name = {0};
    struct buf text = {0};
    int rc = branch_bytes(r, scratch, s, end, &bytes, e);

    if (rc == 0) {
        base64_append(&text, bytes.p, bytes.len);
        json_write_string(&name, end);
        buf_puts(&name, ":\"");
        if (write_json(to, buf_str(&name), e) || write_text(to, buf_str(&text), e) ||
            write_text(to, STR("\""), e))
            rc = -1;
    }
    buf_done(&text);
    buf_done(&name);
    buf_done(&bytes);
    return rc;
}

/* Writes every branch under the id of its last answer. */
static int write_branches(struct replayed *r, struct model_scratch *scratch, struct session *s,
                          FILE *to, struct err *e)
{
    struct branch_vec leaves = {0};
    int rc = 0;

    session_branches(s, &leaves);
    for (size_t i = 0; i < leaves.n && rc == 0; i++) {
        if (i > 0)
            rc = write_text(to, STR(","), e);
        if (rc == 0)
            rc = write_branch(r, scratch, s, leaves.at[i].head->response_id, to, e);
    }
    vec_done(&leaves);
    return rc;
}

/* Writes the page branch by branch, so that only one branch is in memory at a time. */
int html_page_write(struct replayed *r, struct model_scratch *scratch, struct session *s, FILE *to,
                    struct err *e)
{
    struct buf state = {0};
    int rc = session_write_state(s, false, &state, e);

    if (rc == 0 &&
        (write_text(to, viewer_page_head, e) ||
         write_text(to, STR("<script type=\"application/json\" id=\"rollgate-data\">{\"state\":"),
                    e) ||
         write_json(to, buf_str(&state), e) || write_text(to, STR(",\"branches\":{"), e) ||
         write_branches(r, scratch, s, to, e) || write_text(to, STR("}}</script>\n"), e) ||
         write_text(to, viewer_page_tail, e)))
        rc = -1;
    if (rc == 0 && fflush(to))
        rc = err_sys(e, ERR_IO, "cannot write");
    buf_done(&state);
    return rc;
}
