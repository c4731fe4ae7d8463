/* fuzz: rg_common */
/* What the reader accepts is valid UTF-8, is written, and reads back as the same value. */
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_of((const char *)data, size);
    struct arena a = {0};
    struct buf first = {0}, second = {0};
    const struct json *v, *again;
    struct err e = {0};

    if (json_parse(&a, text, &v, &e) == 0) {
        CHECK(utf8_valid(text));
        json_write(&first, v);
        CHECK(json_parse(&a, buf_str(&first), &again, &e) == 0);
        json_write(&second, again);
        CHECK(str_eq(buf_str(&first), buf_str(&second)));
        CHECK(json_equal(v, again) && json_equal(again, v));
    } else {
        CHECK(e.kind == ERR_INVALID && e.text[0]);
    }
    buf_done(&first);
    buf_done(&second);
    arena_done(&a);
    return 0;
}
