/* fuzz: rg_common */
/* The wait that a server asks for is 0, or within its bounds, whatever the headers are. The first
 * line is Retry-After, the rest is retry-after-ms. */
#include "common/base/check.h"
#include "common/net/retry_after.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_of((const char *)data, size);
    size_t line = MIN_OF(str_find(all, STR("\n"), 0), size);
    struct str header = str_sub(all, 0, line), ms = str_sub(all, line + 1, size);
    uint32_t n = retry_after_read(header, ms, 1700000000);

    CHECK(n <= RETRY_AFTER_MAX_S);
    CHECK(n > 0 || retry_after_read(header, (struct str){0}, 1700000000) == 0);
    return 0;
}
