/* A reader passes from record to record. After bytes that are not a record, it searches the next
 * whole one. So a damaged spot loses only the records that it covers. */

#include "common/journal/segment.h"

#include "common/base/check.h"
#include "common/codec/crc32c.h"

static void put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get_u32(const char *p)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(unsigned char)p[i] << (8 * i);
    return v;
}

void segment_head(uint32_t number, unsigned char ret[SEGMENT_HEAD])
{
    memcpy(ret, "RGJ1", 4);
    put_u32(ret + 4, number);
}

/* Classifies a segment by its head. */
static enum segment_kind segment_check_head(struct str bytes, uint32_t number)
{
    if (bytes.len < SEGMENT_HEAD)
        return SEGMENT_TORN;
    if (get_u32(bytes.p + 4) != number || memcmp(bytes.p, "RGJ", 3) != 0)
        return SEGMENT_DAMAGED;
    if (bytes.p[3] == '1')
        return SEGMENT_OURS;
    return bytes.p[3] > '1' && bytes.p[3] <= '9' ? SEGMENT_OTHER : SEGMENT_DAMAGED;
}

void segment_record_head(struct str id, struct str payload, unsigned char ret[RECORD_HEAD])
{
    uint32_t crc;

    CHECK(id.len <= 255 && payload.len < RECORD_MAX - 256);
    put_u32(ret, (uint32_t)(1 + id.len + payload.len));
    ret[8] = (unsigned char)id.len;
    crc = crc32c(0, ret, 4);
    crc = crc32c(crc, ret + 8, 1);
    crc = crc32c(crc, id.p, id.len);
    crc = crc32c(crc, payload.p, payload.len);
    put_u32(ret + 4, crc);
}

/* Reads a record's parts without its checksum. Returns -1 if they do not fit. */
static int read_parts(struct str in, struct journal_record *ret)
{
    uint32_t body;
    size_t id_len;

    if (in.len < RECORD_HEAD)
        return -1;
    body = get_u32(in.p);
    if (body < 1 || body > RECORD_MAX || body > in.len - 8)
        return -1;
    id_len = (unsigned char)in.p[8];
    if (id_len == 0 || id_len + 1 > body)
        return -1;
    ret->id = str_sub(in, 9, id_len);
    ret->payload = str_sub(in, 9 + id_len, body - 1 - id_len);
    ret->size = 8 + (size_t)body;
    return 0;
}

int segment_record(struct str in, struct journal_record *ret)
{
    if (read_parts(in, ret))
        return -1;
    return crc32c(crc32c(0, in.p, 4), in.p + 8, ret->size - 8) == get_u32(in.p + 4) ? 0 : -1;
}

int segment_reader_init(struct segment_reader *r, struct str bytes, uint32_t number, struct err *e)
{
    enum segment_kind kind = segment_check_head(bytes, number);

    *r = (struct segment_reader){.bytes = bytes, .at = kind == SEGMENT_TORN ? 0 : SEGMENT_HEAD};
    if (kind == SEGMENT_OTHER)
        return err_set(e, ERR_UNSUPPORTED,
                       "journal segment %u is of version %c, this program reads 1", number,
                       bytes.p[3]);
    if (kind == SEGMENT_DAMAGED)
        r->damaged = SEGMENT_HEAD;
    return 0;
}

/* Accepts letters, digits, '.' and '-' of ids of sessions and groups, and '~' of notes. */
static bool is_id_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '~';
}

/* Reports whether a record may begin at `in`, by checks that are cheaper than the checksum: its
 * lengths fit, and its id has only bytes of ids. */
static bool may_be_record(struct str in)
{
    size_t id_len = (unsigned char)in.p[8];
    uint32_t body;

    if (id_len == 0 || !is_id_byte((unsigned char)in.p[9]))
        return false;
    body = get_u32(in.p);
    if (id_len + 1 > body || body > in.len - 8)
        return false;
    for (size_t i = 1; i < id_len; i++) {
        if (!is_id_byte((unsigned char)in.p[9 + i]))
            return false;
    }
    return true;
}

/* Returns the checksum of the file's first n bytes. */
static uint32_t sum_until(struct segment_reader *r, size_t n)
{
    size_t step = r->bytes.len / SEGMENT_SUMS + 1, k = n / step;

    for (; r->n_sums <= k; r->n_sums++) {
        size_t last = r->n_sums - 1;

        r->sums[last + 1] = crc32c(r->sums[last], r->bytes.p + last * step, step);
    }
    return crc32c(r->sums[k], r->bytes.p + k * step, n - k * step);
}

/* Like segment_record, but reads little of the body: in damaged bytes, many lengths can look like
 * those of a record. */
static int find_record_at(struct segment_reader *r, size_t at, struct journal_record *ret)
{
    struct str in = str_sub(r->bytes, at, SIZE_MAX);
    uint32_t before;

    if (read_parts(in, ret))
        return -1;
    before = crc32c(0, in.p, 4) ^ sum_until(r, at + 8);
    return (crc32c_move(before, ret->size - 8) ^ sum_until(r, at + ret->size)) == get_u32(in.p + 4)
               ? 0
               : -1;
}

/* Finds the next whole record from `from` on. Returns its offset, or SIZE_MAX. */
static size_t find_next_record(struct segment_reader *r, size_t from, struct journal_record *ret)
{
    r->n_sums = MAX_OF(r->n_sums, 1);
    for (size_t at = from; at + RECORD_HEAD < r->bytes.len; at++)
        if (may_be_record(str_sub(r->bytes, at, SIZE_MAX)) && find_record_at(r, at, ret) == 0)
            return at;
    return SIZE_MAX;
}

int segment_reader_next(struct segment_reader *r, struct journal_record *ret)
{
    size_t found = r->at;

    if (r->at == 0 || r->at >= r->bytes.len)
        return 0;
    if (r->n_sums ? find_record_at(r, r->at, ret)
                  : segment_record(str_sub(r->bytes, r->at, SIZE_MAX), ret)) {
        found = find_next_record(r, r->at + 1, ret);
        if (found == SIZE_MAX)
            return 0;
        r->damaged += found - r->at;
    }
    r->at = found + ret->size;
    return 1;
}
