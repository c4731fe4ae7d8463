/* Reads wait times (retry_after.h). Servers send fractions, and dates in the past: both mean a
 * short wait, not none. */
#include "common/net/retry_after.h"

#include <time.h>

#include "common/base/attrs.h"

/* Reads digits, perhaps with a fraction, as units of 1 / per_second. Rounds the result up. Returns
 * 0 if the text is no such number. */
static uint32_t read_number(struct str s, uint64_t per_second)
{
    size_t point = MIN_OF(str_find(s, STR("."), 0), s.len);
    struct str fraction = str_sub(s, point + 1, s.len);
    uint64_t n = 0, none = 0;

    if (str_to_u64(str_sub(s, 0, point), UINT32_MAX, &n))
        return 0;
    if (point < s.len && str_to_u64(str_sub(fraction, 0, 18), UINT64_MAX, &none))
        return 0;
    n += none > 0;
    return (uint32_t)MIN_OF(MAX_OF((n + per_second - 1) / per_second, UINT64_C(1)),
                            (uint64_t)RETRY_AFTER_MAX_S);
}

/* Reads "Sun, 06 Nov 1994 08:49:37 GMT", the only form that servers write. Returns 0 if the text is
 * no date. */
static uint32_t read_date(struct str s, int64_t now_s)
{
    char text[32];
    struct tm tm = {0};
    const char *end;
    int64_t at;

    if (s.len >= sizeof(text))
        return 0;
    memcpy(text, s.p, s.len);
    text[s.len] = '\0';
    end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end)
        return 0;
    at = (int64_t)timegm(&tm);
    return (uint32_t)MIN_OF(MAX_OF(at - now_s, INT64_C(1)), (int64_t)RETRY_AFTER_MAX_S);
}

uint32_t retry_after_read(struct str header, struct str header_ms, int64_t now_s)
{
    uint32_t n = header_ms.len ? read_number(str_trim(header_ms), 1000) : 0;

    header = str_trim(header);
    if (n == 0 && header.len)
        n = read_number(header, 1);
    return n == 0 && header.len ? read_date(header, now_s) : n;
}
