/* fuzz: rg_common */
#include "common/net/chunked.h"

#include <stdlib.h>

#include "common/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One look at [at, end); the bytes lie in a block of their own so that a byte too far is seen. */
static int look(struct chunked *c, const uint8_t *data, size_t n, size_t *ret_used,
                size_t *ret_pass)
{
    char *exact = malloc(n);
    int r;

    memcpy(exact, data, n);
    r = chunked_scan(c, str_of(exact, n), ret_used, ret_pass, NULL);
    free(exact);
    CHECK(r < 0 || (*ret_pass <= *ret_used && *ret_used <= n));
    return r;
}

/* The result and the consumed length do not depend on how the bytes were cut into pieces. */
static int scan(const uint8_t *data, size_t size, size_t piece, size_t *ret_used,
                size_t *ret_passed)
{
    struct chunked c = {0};
    size_t at = 0, end = 0;
    int r = 0;

    *ret_passed = 0;
    while (r == 0 && end < size) {
        size_t used, pass;

        end = size - end < piece ? size : end + piece;
        do {
            r = look(&c, data + at, end - at, &used, &pass);
            if (r < 0)
                return -1;
            *ret_passed += pass;
            at += used;
        } while (r == 0 && used > 0 && at < end);
    }
    *ret_used = at;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t used_a, used_b, passed_a, passed_b;
    int a, b;

    if (size < 2)
        return 0;
    a = scan(data + 1, size - 1, size, &used_a, &passed_a);
    b = scan(data + 1, size - 1, 1 + data[0] % 17, &used_b, &passed_b);
    CHECK(a == b);
    if (a >= 0)
        CHECK(used_a == used_b && passed_a == passed_b);
    return 0;
}
