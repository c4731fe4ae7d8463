/* fuzz: rg_worker */
/* A change of orders that were read keeps all others. */
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/codec/json.h"
#include "worker/plane/control/orders_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct orders_entry o, again;
    struct arena a = {0};
    struct buf out = {0};

    if (orders_entry_read(&a, str_of((const char *)data, size), &o) == 0) {
        orders_entry_write(&o, FLEET_PAUSED, STR("true"), 77, &out);
        CHECK(orders_entry_read(&a, buf_str(&out), &again) == 0);
        CHECK(json_is_true(again.values[FLEET_PAUSED]) && again.editions[FLEET_PAUSED] == 77);
        for (unsigned kind = 0; kind < FLEET_ORDER_KINDS; kind++)
            CHECK(kind == FLEET_PAUSED || (o.editions[kind] == again.editions[kind] &&
                                           json_equal(o.values[kind], again.values[kind])));
    }
    buf_done(&out);
    arena_done(&a);
    return 0;
}
