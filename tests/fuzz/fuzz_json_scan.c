/* fuzz: rg_common */
/* The pull scanner accepts exactly what the reader accepts, however the text is cut; skipping and
 * the bulk calls survive anything and give one result by every way. The first byte chooses the cuts
 * and the call. */
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
    case 5:
        return json_scan_floats(s, 1, &k->floats, e);
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

/* A bulk call alone, by vector instructions or not. */
static int scan_bulk(struct str text, size_t step, unsigned what, bool wide, struct sink *k)
{
    struct json_scan s;
    struct err e = {0};
    int rc;

    json_scan_init(&s, text.len + 64);
    s.wide = s.wide && wide;
    for (size_t at = 0; (rc = call(&s, what, k, &e)) == 0 && at < text.len; at += step)
        json_scan_feed(&s, str_sub(text, at, step));
    json_scan_done(&s);
    return rc;
}

static void sink_done(struct sink *k)
{
    vec_done(&k->ints);
    vec_done(&k->floats);
    buf_done(&k->bytes);
}

static bool same(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * 4) == 0);
}

/* The text, and an array that repeats it, are to everybody what they are to the exact reader. */
static void check_ways(struct str text, unsigned what, size_t step)
{
    struct sink exact = {0}, got[3] = {0};
    int rc = scan_bulk(text, 16, what, false, &exact);

    const struct {
        size_t step;
        bool wide;
    } ways[3] = {{text.len, false}, {text.len, true}, {step + 100, true}};

    for (size_t i = 0; i < 3; i++) {
        CHECK(scan_bulk(text, ways[i].step, what, ways[i].wide, &got[i]) == rc);
        CHECK(rc != 1 ||
              (same(exact.ints.at, exact.ints.n, got[i].ints.at, got[i].ints.n) &&
               same(exact.floats.at, exact.floats.n, got[i].floats.at, got[i].floats.n)));
        sink_done(&got[i]);
    }
    sink_done(&exact);
}

static void check_repeated(struct str item, unsigned what, size_t step)
{
    struct buf text = {0};

    check_ways(item, what, step);
    buf_add_c(&text, '[');
    for (int i = 0; i < 40 && text.len < 4000; i++) {
        buf_puts(&text, i == 0 ? "" : step % 2 ? "," : ", ");
        buf_add_str(&text, item);
    }
    buf_add_c(&text, ']');
    check_ways(buf_str(&text), what, step);
    buf_done(&text);
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
    if (data[0] % 8 == 2 || data[0] % 8 == 3 || data[0] % 8 == 5)
        check_repeated(str_of((const char *)data + 1, size - 1), data[0] % 8, step);
    if (valid)
        CHECK(scan(buf_str(&text), step, 1) == 1);
    buf_done(&text);
    arena_done(&a);
    return 0;
}
