/* fuzz: rg_worker */
/* Any bytes as a segment: reading ends, records lie inside, their checksums hold. */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/journal/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct segment_reader in;
    struct journal_record rec;
    struct str bytes = str_of((const char *)data, size);
    size_t last = 0;
    struct err e;

    if (segment_reader_init(&in, bytes, 1, &e))
        return 0;
    while (segment_reader_next(&in, &rec) == 1) {
        unsigned char head[RECORD_HEAD];

        CHECK(in.at > last && in.at <= size && rec.size <= in.at);
        CHECK(rec.id.p >= bytes.p && rec.payload.p + rec.payload.len == bytes.p + in.at);
        segment_record_head(rec.id, rec.payload, head);
        CHECK(memcmp(head, bytes.p + in.at - rec.size, sizeof(head)) == 0);
        last = in.at;
    }
    return 0;
}
