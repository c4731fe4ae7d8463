#include "supervisor/token_file.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "testing.h"

static void read_file(struct token_file *f, struct buf *bytes, const char *header)
{
    uint64_t n = strlen(header);
    struct err e = {0};

    buf_add(bytes, &n, sizeof(n));
    buf_puts(bytes, header);
    cr_assert_eq(token_file_read(f, buf_str(bytes), &e), 0, "%s", e.text);
}

static bool is_text(const struct token_file *f, int32_t id, const char *want)
{
    struct str text = token_file_text(f, id);

    return want ? str_eq_c(text, want) : !text.p;
}

Test(token_file, finds_the_texts_of_ids)
{
    struct token_file f;
    struct buf bytes = {0};

    read_file(
        &f, &bytes,
        "{\"__metadata__\":{\"trajectories\":\"[]\",\"vocabulary\":\"{\\\"107\\\":{\\\"t\\\":"
        "\\\"c\\\"},\\\"7\\\":{\\\"t\\\":\\\"a\\\"},\\\"x\\\":{\\\"t\\\":\\\"no id\\\"},"
        "\\\"2147483647\\\":{\\\"t\\\":\\\"d\\\"},\\\"99999999999\\\":{\\\"t\\\":\\\"none\\\"},"
        "\\\"20\\\":{\\\"b\\\":\\\"/w==\\\"},\\\"0\\\":{\\\"t\\\":\\\"\\\"}}\"}}");
    cr_assert(is_text(&f, 107, "c") && is_text(&f, 7, "a") && is_text(&f, INT32_MAX, "d"));
    cr_assert(is_text(&f, 0, ""));
    cr_assert(is_text(&f, 20, NULL) && is_text(&f, 8, NULL) && is_text(&f, -7, NULL));
    cr_assert_null(f.trajectory);
    token_file_done(&f);
    buf_done(&bytes);
}

Test(token_file, without_a_vocabulary)
{
    struct token_file f;
    struct buf bytes = {0};

    read_file(&f, &bytes, "{\"__metadata__\":{\"trajectories\":\"[]\",\"vocabulary\":\"{}\"}}");
    cr_assert(is_text(&f, 0, NULL));
    token_file_done(&f);
    buf_done(&bytes);
}
