/* fuzz: rg_common */
/* A JSON text's strings become valid UTF-8, however they are cut; the first byte is the cut. */
#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/surrogates.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void join(const struct json *list, size_t at, struct buf *out)
{
    struct surrogates s = {0};

    for (size_t i = 0; json_at(list, i); i++) {
        struct str text = json_string(json_at(list, i));
        /* Between characters alone, as JSON texts come. */
        size_t cut = MIN_OF(at, text.len);

        while (cut > 0 && cut < text.len && ((unsigned char)text.p[cut] & 0xc0) == 0x80)
            cut--;
        surrogates_add(&s, str_sub(text, 0, cut), out);
        surrogates_add(&s, str_sub(text, cut, text.len), out);
    }
    surrogates_end(&s, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = {0};
    struct buf whole = {0}, cut = {0};
    const struct json *list;
    struct err e;

    if (size > 1 && json_parse(&a, str_of((const char *)data + 1, size - 1), &list, &e) == 0) {
        join(list, 0, &whole);
        join(list, data[0], &cut);
        CHECK(utf8_valid(buf_str(&whole)) && str_eq(buf_str(&whole), buf_str(&cut)));
    }
    buf_done(&whole);
    buf_done(&cut);
    arena_done(&a);
    return 0;
}
