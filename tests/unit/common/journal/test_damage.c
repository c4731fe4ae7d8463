/* After a damaged spot, reading continues at the next whole record, for all kinds of ids. */
#include <string.h>

#include "common/base/buf.h"
#include "common/journal/segment.h"
#include "testing.h"

static void put_record(struct buf *b, const char *id, const char *payload)
{
    unsigned char head[RECORD_HEAD];

    segment_record_head(str_cstr(id), str_cstr(payload), head);
    buf_add(b, head, sizeof(head));
    buf_puts(b, id);
    buf_puts(b, payload);
}

static void put_head(struct buf *b)
{
    unsigned char head[SEGMENT_HEAD];

    segment_head(1, head);
    buf_add(b, head, sizeof(head));
}

/* Reads all whole records of segment 1 as "id=payload;". Returns the number of skipped bytes. */
static size_t read_all(struct buf *segment, struct buf *got)
{
    struct segment_reader in;
    struct journal_record rec;
    struct err e;

    cr_assert_eq(segment_reader_init(&in, buf_str(segment), 1, &e), 0);
    while (segment_reader_next(&in, &rec) == 1)
        buf_printf(got, "%.*s=%.*s;", (int)rec.id.len, rec.id.p, (int)rec.payload.len,
                   rec.payload.p);
    return in.damaged;
}

/* Ids of the dispatcher are groups, those of a worker sessions. '~' is the id of notes. */
TEST(journal_damage, reading_goes_on_whatever_ids_begin_with)
{
    static const char *const ids[] = {
        "h-1", "step-12", "0", "Z", ".x", "-y", "w0-0123456789abcdef0123456789abcdef", "~"};

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct buf segment = {0}, got = {0}, want = {0};
        size_t from, bytes;

        put_head(&segment);
        put_record(&segment, ids[i], "one");
        from = segment.len;
        put_record(&segment, ids[i], "the damaged record");
        bytes = segment.len - from;
        put_record(&segment, ids[i], "three");
        put_record(&segment, ids[i], "four");
        segment.p[from + RECORD_HEAD + strlen(ids[i]) + 4] ^= 1;
        buf_printf(&want, "%s=one;%s=three;%s=four;", ids[i], ids[i], ids[i]);
        cr_expect_eq(read_all(&segment, &got), bytes);
        cr_expect(str_eq(buf_str(&got), buf_str(&want)), "%.*s", (int)got.len, got.p);
        buf_done(&segment);
        buf_done(&got);
        buf_done(&want);
    }
}

/* The records between two damaged spots and a torn end are read. */
TEST(journal_damage, costs_what_it_covers_only)
{
    struct buf segment = {0}, got = {0};
    size_t second;

    put_head(&segment);
    put_record(&segment, "h-1", "damaged");
    put_record(&segment, "h-2", "two");
    second = segment.len;
    put_record(&segment, "h-3", "damaged");
    put_record(&segment, "h-4", "four");
    put_record(&segment, "h-5", "torn");
    segment.p[SEGMENT_HEAD] ^= 0x40; /* damages the length of each */
    segment.p[second] ^= 0x40;
    segment.len -= 2;
    (void)read_all(&segment, &got);
    cr_expect(str_eq_c(buf_str(&got), "h-2=two;h-4=four;"), "%.*s", (int)got.len, got.p);
    buf_done(&segment);
    buf_done(&got);
}

/* Each head claims the rest of the file, so their bodies together are as long as its square. */
TEST(journal_damage, many_false_heads_are_read_in_little_time)
{
    enum { BYTES = 6 << 20, HEAD = RECORD_HEAD + 1 };
    struct buf segment = {0}, got = {0};

    put_head(&segment);
    put_record(&segment, "h-1", "one");
    while (segment.len < BYTES) {
        uint32_t body = (uint32_t)(BYTES - segment.len - 8);
        const unsigned char head[HEAD] = {(unsigned char)body,
                                          (unsigned char)(body >> 8),
                                          (unsigned char)(body >> 16),
                                          0,
                                          [8] = 1,
                                          [9] = 'x'};

        buf_add(&segment, head, sizeof(head));
    }
    put_record(&segment, "h-2", "two");
    (void)read_all(&segment, &got);
    cr_expect(str_eq_c(buf_str(&got), "h-1=one;h-2=two;"), "%.*s", (int)got.len, got.p);
    buf_done(&segment);
    buf_done(&got);
}
