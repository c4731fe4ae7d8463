#include "worker/api/call.h"

/* Behind blanks. */
static size_t skip(struct str s, size_t at)
{
    while (at < s.len && (s.p[at] == ' ' || s.p[at] == '\n' || s.p[at] == '\r' || s.p[at] == '\t'))
        at++;
    return at;
}

/* The end of a "stream": true|false or "stream_options": {...} member that begins at `at` (its
 * quote), or `at` when there is none. Inside strings quotes are escaped, so this is a key. */
static size_t member_end(struct str s, size_t at)
{
    static const char *const keys[] = {"\"stream\"", "\"stream_options\""};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        size_t p;

        if (!str_starts(str_sub(s, at, SIZE_MAX), str_cstr(keys[i])))
            continue;
        p = skip(s, at + strlen(keys[i]));
        if (p >= s.len || s.p[p] != ':')
            continue;
        p = skip(s, p + 1);
        if (i == 0) {
            struct str v = str_sub(s, p, 5);

            if (str_starts(v, STR("true")))
                return p + 4;
            if (str_eq_c(v, "false"))
                return p + 5;
            continue;
        }
        if (p < s.len && s.p[p] == '{') {
            size_t end = str_find(s, STR("}"), p);

            return end == SIZE_MAX ? at : end + 1;
        }
    }
    return at;
}

void call_hash(struct str body, uint64_t ret[2])
{
    struct buf rest = {0};
    size_t from = 0;
    size_t at = 0;
    struct str text = body;

    while ((at = str_find(body, STR("\"stream"), at)) != SIZE_MAX) {
        size_t end = member_end(body, at);

        if (end == at || (at > 0 && body.p[at - 1] == '\\')) {
            at++;
            continue;
        }
        buf_add_str(&rest, str_sub(body, from, at - from));
        from = skip(body, end);
        if (from < body.len && body.p[from] == ',')
            from = skip(body, from + 1);
        else /* the last member: the comma before it goes */
            while (rest.len > 0 && (rest.p[rest.len - 1] == ',' || rest.p[rest.len - 1] == ' ' ||
                                    rest.p[rest.len - 1] == '\n'))
                rest.len--;
        at = from;
    }
    if (from > 0) {
        buf_add_str(&rest, str_sub(body, from, SIZE_MAX));
        text = buf_str(&rest);
    }
    ret[0] = str_hash(text, 0x6a09e667f3bcc908ULL);
    ret[1] = str_hash(text, 0xbb67ae8584caa73bULL);
    buf_done(&rest);
}
