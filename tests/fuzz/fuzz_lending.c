/* fuzz: rg_common */
#include "common/net/lending.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/net/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the router would judge of a request that a worker serves unseen by it is what it has judged
 * of the one before: all but the length is the same, to the byte. */
static void check_alike(const struct http1_head *had, const struct http1_head *got)
{
    CHECK(got->n == had->n && got->minor == had->minor && got->keep_alive == had->keep_alive);
    CHECK(str_eq(got->method, had->method) && str_eq(got->target, had->target));
    for (size_t i = 0; i < got->n; i++) {
        CHECK(str_eq(got->headers[i].name, had->headers[i].name));
        CHECK(got->headers[i].known == HTTP1_CONTENT_LENGTH ||
              str_eq(got->headers[i].value, had->headers[i].value));
        CHECK(got->headers[i].drop == had->headers[i].drop);
    }
}

/* Two requests, the first one's length before them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http1_head had, got;
    size_t first, length_at, whole, part;
    struct str head, a, b;
    char *copy;

    if (size < 2)
        return 0;
    first = MIN_OF(data[0] + (size_t)data[1] * 256, size - 2);
    copy = malloc(size - 2 + 1);
    memcpy(copy, data + 2, size - 2);
    a = str_of(copy, first);
    b = str_of(copy + first, size - 2 - first);
    if (http1_request(&had, a, 0, 65536, NULL) == 1 && lending_plain(&had, &head, &length_at)) {
        bool same = lending_matches(head, length_at, b, &whole);

        CHECK(lending_matches(head, length_at, head, &part) ==
              (had.length < 1000ull * 1000 * 1000 * 1000 * 1000));
        if (same && whole > 0) {
            CHECK(http1_request(&got, b, 0, 65536, NULL) == 1);
            CHECK(whole == got.len_bytes + got.length);
            check_alike(&had, &got);
            for (size_t i = 0; i < got.len_bytes; i++)
                CHECK(lending_matches(head, length_at, str_sub(b, 0, i), &part) && part == 0);
        }
    }
    free(copy);
    return 0;
}
