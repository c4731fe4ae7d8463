/* fuzz: rg_common */
/* What is kept of a line is one line of JSON. Secrets of a known form are never kept. */
#include "common/base/check.h"
#include "common/codec/json.h"
#include "common/proc/log_filter.h"
#include "common/proc/redaction.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str line = str_of((const char *)data, size);
    struct buf out = {0}, safe = {0};
    const struct json *v;
    struct arena a = {0};
    struct err e;

    if (log_filter_add(line, &out)) {
        CHECK(str_find(buf_str(&out), STR("\n"), 0) == out.len - 1);
        CHECK(json_parse(&a, buf_str(&out), &v, &e) == 0);
    } else {
        CHECK(out.len == 0);
    }
    redaction_add(line, &safe);
    CHECK(str_find(buf_str(&safe), STR("Bearer s"), 0) == SIZE_MAX);
    buf_done(&safe);
    buf_done(&out);
    arena_done(&a);
    return 0;
}
