/* fuzz: rg_common */
#include "common/base/limits.h"
#include "common/net/http1.h"

#include <stdlib.h>

#include "common/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A head that is found in the whole is found, alike, when it came in two pieces; what is forwarded
 * lies inside the head and parses again without anything left to drop. */
static void check_forward(const struct http1_head *h, struct str in)
{
    struct iovec iov[HTTP1_HEADERS_MAX];
    int n = http1_forward(h, iov);

    for (int i = 0; i < n; i++) {
        const char *p = iov[i].iov_base;

        CHECK(p >= in.p && p + iov[i].iov_len <= in.p + h->len_bytes);
        CHECK(p[iov[i].iov_len - 1] == '\n' && p[-1] == '\n');
    }
}

static int parse(struct http1_head *h, struct str in, size_t seen, int kind)
{
    struct err e;

    return kind == 0 ? http1_request(h, in, seen, 4096, &e)
                     : http1_response(h, in, seen, 4096, kind == 2, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http1_head whole, again;
    struct str in;
    char *exact;
    size_t cut;
    int kind, r;

    if (size < 3)
        return 0;
    kind = data[0] % 3;
    exact = malloc(size - 3);
    memcpy(exact, data + 3, size - 3);
    in = str_of(exact, size - 3);
    r = parse(&whole, in, 0, kind);
    if (r == 1) {
        cut = (data[1] + (size_t)data[2] * 256) % whole.len_bytes;
        check_forward(&whole, in);
        CHECK(whole.len_bytes <= in.len);
        CHECK(parse(&again, str_of(in.p, cut), 0, kind) == 0);
        CHECK(parse(&again, str_of(in.p, whole.len_bytes), cut, kind) == 1);
        CHECK(again.n == whole.n && again.body == whole.body && again.length == whole.length);
    }
    free(exact);
    return 0;
}
