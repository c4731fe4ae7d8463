/* Objects in records as members of texts, as earlier versions wrote them: they are read, and torn
 * ones are refused. */
#include "worker/session/member_record.h"

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "testing.h"

/* n, then keys and values with their lengths + 1. */
#define RECORDED             \
    "\4\4uid\6\"t-1\"\1\3{}" \
    "\5long\7[0.50]\2n\0052.50"

static struct str recorded(void)
{
    return str_of(RECORDED, sizeof(RECORDED) - 1);
}

TEST(member_record, an_object_is_read)
{
    struct arena a = {0};
    struct buf is = {0};
    const struct json *read = NULL;
    struct err e = {0};

    cr_assert_eq(member_record_read(recorded(), &a, &read, &e), 0, "%s", e.text);
    json_write(&is, read);
    cr_assert(str_eq_c(buf_str(&is), "{\"uid\":\"t-1\",\"\":{},\"long\":[0.50],\"n\":2.50}"));
    buf_done(&is);
    arena_done(&a);
}

static int read_bytes(const char *bytes, size_t n)
{
    struct arena a = {0};
    const struct json *read;
    struct err e = {0};
    char *copy = arena_cstr(&a, str_of(bytes, n)); /* so that ASan sees a read past it */
    int rc = member_record_read(str_of(copy, n), &a, &read, &e);

    cr_assert(rc == 0 || e.kind == ERR_IO);
    arena_done(&a);
    return rc;
}

TEST(member_record, torn_ones_are_refused)
{
    for (size_t n = 0; n < recorded().len; n++)
        cr_assert_eq(read_bytes(RECORDED, n), -1, "%zu bytes", n);
    cr_assert_eq(read_bytes("\1\2a\2"
                            "1x",
                            6),
                 -1, "more bytes follow");
    cr_assert_eq(read_bytes("\1\2a\2x", 5), -1, "a value that is not JSON");
    cr_assert_eq(read_bytes("\1\2a\2"
                            "1",
                            5),
                 0);
}
