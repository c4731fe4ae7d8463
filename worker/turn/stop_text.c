#include "worker/turn/stop_text.h"

void stop_text_init(struct stop_text *s, const struct json *stops)
{
    *s = (struct stop_text){.stops = stops && stops->n > 0 ? stops : NULL};
}

void stop_text_done(struct stop_text *s)
{
    buf_done(&s->held);
}

/* Start of the earliest stop string in `text`, the shortest one of those that start there: the same
 * that comes first when the text arrives byte by byte. */
static size_t find_stop(const struct stop_text *s, struct str text, struct str *ret)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < s->stops->n; i++) {
        struct str stop = json_string(json_at(s->stops, i));
        size_t at = str_find(text, stop, 0);

        if (at < best || (at == best && at != SIZE_MAX && stop.len < ret->len)) {
            best = at;
            *ret = stop;
        }
    }
    return best;
}

/* Length of the longest end of `text` that begins a stop string. */
static size_t open_tail(const struct stop_text *s, struct str text)
{
    size_t longest = 0;

    for (size_t i = 0; i < s->stops->n; i++) {
        struct str stop = json_string(json_at(s->stops, i));
        size_t n = stop.len - 1 < text.len ? stop.len - 1 : text.len;

        while (n > longest && !str_starts(stop, str_sub(text, text.len - n, n)))
            n--;
        if (n > longest)
            longest = n;
    }
    return longest;
}

void stop_text_feed(struct stop_text *s, struct str text, struct buf *out)
{
    struct str all;
    size_t at;

    if (s->hit.p)
        return;
    if (!s->stops) {
        buf_add_str(out, text);
        return;
    }
    buf_add_str(&s->held, text);
    all = buf_str(&s->held);
    at = find_stop(s, all, &s->hit);
    if (at == SIZE_MAX)
        at = all.len - open_tail(s, all);
    buf_add_str(out, str_sub(all, 0, at));
    buf_consume(&s->held, at);
}

void stop_text_finish(struct stop_text *s, struct buf *out)
{
    if (!s->hit.p)
        buf_add_str(out, buf_str(&s->held));
    buf_clear(&s->held);
}
