/* fuzz: rg_keeper */
/* What is read of an entry of a store is written so that it reads the same. */
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "keeper/node_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_of((const char *)data, size);
    struct fleet_entry fleet, fleet_again;
    struct node_entry node, again;
    struct buf out = {0};

    if (node_entry_read(text, &node) == 0) {
        node_entry_write(&node, &out);
        CHECK(node_entry_read(buf_str(&out), &again) == 0);
        CHECK(strcmp(node.address, again.address) == 0 && node.block == again.block);
        CHECK(node.load == again.load && node.edition == again.edition);
    }
    buf_clear(&out);
    if (fleet_entry_read(text, &fleet) == 0) {
        fleet_entry_write(&fleet, &out);
        CHECK(fleet_entry_read(buf_str(&out), &fleet_again) == 0);
        CHECK(fleet_again.n_secrets == fleet.n_secrets);
        CHECK(fleet_entry_fault(&fleet, &fleet_again) == NULL ||
              fleet.layout != fleet_again.layout);
    }
    buf_done(&out);
    return 0;
}
