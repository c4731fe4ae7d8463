/* fuzz: rg_worker. Metrics of engines (kv_told.h): whatever comes, no more is used than there is.
 */
#include "common/base/check.h"
#include "worker/engine/adapter.h"
#include "worker/engine/wire/kv_told.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct engine_kv kv = {0};

    kv_told_read(str_of((const char *)data, size), &kv);
    CHECK(kv.used <= kv.capacity && kv.capacity <= 1000000000000000 && kv.unit == 0);
    return 0;
}
