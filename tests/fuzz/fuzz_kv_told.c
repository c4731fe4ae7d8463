/* fuzz: rg_worker. Metrics of engines (kv_told.h): whatever comes, no more is used than there is,
 * and pieces tell what the whole does. */
#include "common/base/check.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/wire/kv_told.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_of((const char *)data, size);
    struct kv_told whole = {0}, pieces = {0};
    struct engine_kv kv = {0}, again = {0};

    kv_told_feed(&whole, text);
    kv_told_end(&whole, &kv);
    CHECK(kv.used <= kv.capacity && kv.capacity <= 1000000000000000 && kv.unit == 0);
    for (size_t at = 0, n = 1; at < size; at += n, n = 1 + n * 3 % 7)
        kv_told_feed(&pieces, str_sub(text, at, n));
    kv_told_end(&pieces, &again);
    CHECK(again.used == kv.used && again.capacity == kv.capacity);
    kv_told_done(&whole);
    kv_told_done(&pieces);
    return 0;
}
