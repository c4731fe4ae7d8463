/* fuzz: rg_router */
/*
 * Heads as the router reads, judges and sends them on: byte 0 request or answer, byte 1 how; the
 * rest is a head. What goes out is a head again, to the same worker, with the same framing, and
 * nothing but what belongs to one connection is gone.
 */
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/proc/ids.h"
#include "router/heads.h"
#include "router/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_MAX = 8192, OWN_LINES_MAX = 3 };

static void flatten(const struct iovec *iov, int n, struct buf *out)
{
    CHECK(n <= HEADS_IOV);
    for (int i = 0; i < n; i++)
        buf_add_str(out, str_of(iov[i].iov_base, iov[i].iov_len));
}

static void request(struct str in, unsigned how)
{
    static struct http1_head h, again;
    struct heads_request more = {0};
    struct iovec iov[HEADS_IOV];
    char extra[HEADS_EXTRA];
    struct route to, then;
    struct buf out = {0};
    struct err e;
    int shown;

    if (http1_request(&h, in, 0, HEAD_MAX, &e) != 1)
        return;
    if (h.minor == 0 && !http1_get(&h, STR("host")).p)
        return; /* a 1.1 without Host, which workers take and this parser does not */
    shown = route_find(&h, NULL, &to, &e);
    if (!heads_have_space(&h))
        return; /* with our lines more than this parser takes from a client; it goes to a worker */
    more.confirms = how & 1;
    if (how & 2) {
        more.host = STR("10.0.0.1:8600");
        more.forwarded = STR("0-3");
    }
    flatten(iov, heads_request(&h, &more, (struct str){0}, extra, iov), &out);
    CHECK(http1_request(&again, buf_str(&out), 0, 2 * HEAD_MAX, &e) == 1);
    CHECK(again.len_bytes == out.len && again.minor == 1);
    CHECK(route_find(&again, NULL, &then, &e) == shown);
    CHECK(then.kind == to.kind && then.index == to.index && str_eq(then.session, to.session));
    CHECK(str_eq(again.target, h.target) && str_eq(again.method, h.method));
    CHECK(again.body == h.body && again.length == h.length);
    if (more.host.p) {
        CHECK(str_eq(http1_known(&again, HTTP1_HOST), more.host));
        CHECK(again.at[HTTP1_X_FORWARDED_HOST] && again.at[HTTP1_FORWARDED]);
    }
    CHECK(str_eq(then.proof.id, to.proof.id) && then.proof.meant == to.proof.meant);
    CHECK(to.proof.scope == KEY_NONE && str_eq(then.place, to.place));
    CHECK(!to.place.p || !ids_fault(to.place) == (to.session.p != NULL));
    buf_done(&out);
}

static void answer(struct str in, unsigned how)
{
    const struct heads_answer a = {.closing = how & 1,
                                   .old = how & 2,
                                   .request_id = how & 4 ? STR("0123456789abcdef") : STR("")};
    static struct http1_head h, again;
    struct iovec iov[HEADS_IOV];
    char extra[HEADS_EXTRA];
    struct buf out = {0};
    struct err e;

    if (http1_response(&h, in, 0, HEAD_MAX, false, &e) != 1)
        return;
    if (h.n > HTTP1_HEADERS_MAX - OWN_LINES_MAX)
        return; /* a full head and our lines are more than our reader takes; clients have own limits
                 */
    if (h.status < 200)
        flatten(iov, heads_interim(&h, in.p, iov), &out);
    else
        flatten(iov, heads_answer(&h, in.p, &a, extra, iov), &out);
    CHECK(http1_response(&again, buf_str(&out), 0, 2 * HEAD_MAX, false, &e) == 1);
    CHECK(again.len_bytes == out.len && again.status == h.status);
    if (h.status >= 200 && h.status != 204 && !a.old) /* a 204 has no length */
        CHECK(again.body == h.body && again.length == h.length);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *exact;

    if (size < 2)
        return 0;
    exact = malloc(size - 2);
    memcpy(exact, data + 2, size - 2);
    if (data[0] & 1)
        answer(str_of(exact, size - 2), data[1]);
    else
        request(str_of(exact, size - 2), data[1]);
    free(exact);
    return 0;
}
