#include "worker/session/record/record.h"

#include "testing.h"

/* Tests lengths around those that need a longer number, and some between. */
TEST(record, a_text_written_in_place_is_the_same_as_one_that_is_put)
{
    static const size_t lengths[] = {0,     1,     7,     125,           126,           127,
                                     16381, 16382, 16383, (1 << 21) - 2, (1 << 21) - 1, 5 << 20};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        struct buf text = {0}, put = {0}, written = {0};
        struct record_in in;
        size_t from;

        for (size_t k = 0; k < lengths[i]; k++)
            buf_add_c(&text, (char)(k * 7 + k / 251));
        record_put_u(&put, 300);
        record_put_str(&put, str_of(text.p ? text.p : "", text.len));
        record_put_u(&put, 5);
        record_put_u(&written, 300);
        from = record_open_str(&written);
        buf_add_str(&written, buf_str(&text));
        record_close_str(&written, from);
        record_put_u(&written, 5);
        cr_assert(str_eq(buf_str(&written), buf_str(&put)), "of %zu bytes", lengths[i]);
        in = record_in_of(buf_str(&written));
        cr_assert_eq(record_u(&in), 300);
        cr_assert(str_eq(record_str(&in), str_of(text.p ? text.p : "", text.len)));
        cr_assert_eq(record_u(&in), 5);
        cr_assert(!in.bad && in.p == in.end);
        buf_done(&text);
        buf_done(&put);
        buf_done(&written);
    }
}
