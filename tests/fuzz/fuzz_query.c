/* fuzz: rg_common */
/* What a query is split into stands in it, in order, with nothing between but '&' and '='; decoded
 * texts are never longer than raw ones, and both readers see the same pairs. */

#include "common/base/check.h"
#include "common/codec/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_of((const char *)data, size), rest = all, again = all, name, value;
    struct arena a = {0};
    const char *at = all.p;

    while (query_split(&rest, &name, &value)) {
        struct str decoded, text;

        CHECK(str_find(name, STR("&"), 0) == SIZE_MAX && str_find(name, STR("="), 0) == SIZE_MAX);
        CHECK(str_find(value, STR("&"), 0) == SIZE_MAX);
        for (; at < name.p; at++)
            CHECK(*at == '&');
        at = value.len ? value.p + value.len : name.p + name.len;
        if (!value.len && at < all.p + all.len && *at == '=')
            at++;
        CHECK(query_next(&a, &again, &decoded, &text));
        CHECK(decoded.len <= name.len && text.len <= value.len);
    }
    CHECK(!query_next(&a, &again, &name, &value));
    arena_done(&a);
    return 0;
}
