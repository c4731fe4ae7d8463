/* fuzz: rg_common */
/* The pull scanner accepts exactly what the reader accepts, however the text is cut; skipping and
 * the bulk calls survive anything. The first byte chooses the cuts and the call. */
#include "common/base/check.h"
#include "common/base/vec.h"
#include "common/codec/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sink {
    struct json_ints ints;
    struct json_floats floats;
    struct buf bytes;
};

static int call(struct json_scan *s, unsigned what, struct sink *k, struct err *e)
{
    bool null;

    switch (what) {
    case 1:
        return json_scan_skip(s, e);
    case 2:
        return json_scan_ints(s, 1, &k->ints, e);
    case 3:
        return json_scan_triples(s, 1, &k->floats, &k->ints, e);
    case 4:
        return json_scan_base64(s, 1000, &k->bytes, &null, e);
    default:
        return json_scan_next(s, e);
    }
}

/* 1 complete, else not. `what` 0: token by token. */
static int scan(struct str text, size_t step, unsigned what)
{
    struct json_scan s;
    struct sink k = {0};
    struct err e = {0};
    size_t at = 0;
    int rc;

    json_scan_init(&s, text.len + 64);
    for (;;) {
        rc = call(&s, what, &k, &e);
        CHECK(rc >= 0 || e.kind == ERR_INVALID);
        if (rc < 0)
            break;
        if (rc == 0) {
            if (at == text.len)
                break;
            json_scan_feed(&s, str_sub(text, at, step));
            at += MIN_OF(step, text.len - at);
        } else if (what != 0) {
            what = 0;
        } else if (s.token == JSON_TOKEN_END) {
            if (at == text.len)
                break;
            json_scan_feed(&s, str_sub(text, at, step));
            at += MIN_OF(step, text.len - at);
        }
    }
    json_scan_done(&s);
    vec_done(&k.ints);
    vec_done(&k.floats);
    buf_done(&k.bytes);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = {0};
    struct buf text = {0};
    const struct json *v;
    struct err e = {0};
    bool valid;
    size_t step;

    if (size < 1)
        return 0;
    step = data[0] / 8 ? data[0] / 8 : size;
    buf_add(&text, data + 1, size - 1);
    buf_add_c(&text, ' '); /* ends a number at the top */
    valid = json_parse(&a, buf_str(&text), &v, &e) == 0;
    CHECK((scan(buf_str(&text), step, 0) == 1) == valid);
    (void)scan(buf_str(&text), step, data[0] % 8);
    if (valid)
        CHECK(scan(buf_str(&text), step, 1) == 1);
    buf_done(&text);
    arena_done(&a);
    return 0;
}
