/* Parses server-sent events (sse.h) as bytes arrive: data is returned in runs, nothing is
 * collected. A line may end in CR, LF or CRLF; lines other than data and event are skipped. The
 * size of an event is limited (max_event). */

#include "common/net/sse.h"

enum sse_state {
    FIELD,       /* in a field's name, or at the start of a line */
    SPACE,       /* after the colon: one space is skipped */
    VALUE_DATA,  /* in a "data" line */
    VALUE_EVENT, /* in an "event" line */
    VALUE_OTHER,
    JOIN, /* a further "data" line: a line feed is returned before it */
};

static void skip_bytes_of(struct str *in, size_t n)
{
    in->p += n;
    in->len -= n;
}

/* Returns the number of bytes of the line that are in `in`. */
static size_t bytes_to_line_end(struct str in)
{
    const char *lf = memchr(in.p, '\n', in.len);
    size_t n = lf ? (size_t)(lf - in.p) : in.len;
    const char *cr = memchr(in.p, '\r', n);

    return cr ? (size_t)(cr - in.p) : n;
}

static bool field_is(const struct sse *s, const char *name)
{
    return s->field_len <= sizeof(s->field) && str_eq_c(str_of(s->field, s->field_len), name);
}

/* Uses the value of the field that was just read. */
static void field_done(struct sse *s)
{
    if (field_is(s, "data")) {
        s->state = s->has_data ? JOIN : VALUE_DATA;
        s->has_data = true;
    } else if (field_is(s, "event")) {
        s->name_len = 0;
        s->state = VALUE_EVENT;
    } else {
        s->state = VALUE_OTHER;
    }
}

/* Reads the end of the line at the front of `in`. An empty line ends the event. */
static int end_line(struct sse *s, struct str *in)
{
    bool empty = s->state == FIELD && s->field_len == 0;
    bool event = empty && s->has_data;

    s->skip_lf = in->p[0] == '\r';
    skip_bytes_of(in, 1);
    s->name[s->name_len] = 0;
    s->state = FIELD;
    s->field_len = 0;
    if (!empty)
        return SSE_MORE;
    s->has_data = false;
    s->event_bytes = 0;
    s->told = true;
    return event ? SSE_EVENT : SSE_MORE;
}

/* Reads a byte of a field's name. Names that are too long are only counted. */
static void read_field_byte(struct sse *s, struct str *in)
{
    char c = in->p[0];

    skip_bytes_of(in, 1);
    if (c == ':') {
        s->state = SPACE;
        return;
    }
    if (s->field_len < sizeof(s->field))
        s->field[s->field_len] = c;
    if (s->field_len <= sizeof(s->field))
        s->field_len++;
}

static void read_event_name(struct sse *s, struct str run)
{
    for (size_t i = 0; i < run.len && s->name_len < SSE_NAME_MAX; i++)
        s->name[s->name_len++] = run.p[i];
}

/* Reads a run of the line's value, not empty. */
static int read_value_run(struct sse *s, struct str *in, size_t n, struct str *ret, struct err *e)
{
    struct str run = str_of(in->p, n);

    skip_bytes_of(in, n);
    if (s->state == VALUE_EVENT)
        read_event_name(s, run);
    if (s->state != VALUE_DATA)
        return SSE_MORE;
    s->event_bytes += n;
    if (s->event_bytes > s->max_event)
        return err_set(e, ERR_ENGINE_INVALID, "an event of more than %zu bytes", s->max_event);
    *ret = run;
    return SSE_DATA;
}

/* Handles a line without a colon: "data" is an empty data line, which counts. */
static void bare_field(struct sse *s)
{
    if (s->state == FIELD && s->field_len > 0 && field_is(s, "data"))
        s->has_data = true;
}

/* Does one step. Returns SSE_MORE, SSE_DATA, SSE_EVENT, or -1. */
static int step_line(struct sse *s, struct str *in, struct str *ret, struct err *e)
{
    bool at_end = in->p[0] == '\n' || in->p[0] == '\r';

    if (s->skip_lf) {
        s->skip_lf = false;
        if (in->p[0] == '\n') {
            skip_bytes_of(in, 1);
            return SSE_MORE;
        }
    }
    if (s->state == SPACE) {
        if (in->p[0] == ' ')
            skip_bytes_of(in, 1);
        field_done(s);
        return SSE_MORE;
    }
    if (s->state == JOIN) {
        s->state = VALUE_DATA;
        *ret = STR("\n");
        return SSE_DATA;
    }
    if (at_end) {
        bare_field(s);
        return end_line(s, in);
    }
    if (s->state != FIELD)
        return read_value_run(s, in, bytes_to_line_end(*in), ret, e);
    read_field_byte(s, in);
    return SSE_MORE;
}

/* Skips a byte order mark before the stream. Bytes that only resemble one are the start of an
 * unknown field. */
static void pass_bom(struct sse *s, struct str *in)
{
    static const char mark[] = "\xef\xbb\xbf";

    while (s->bom < 3 && in->len > 0) {
        if (in->p[0] == mark[s->bom]) {
            s->bom++;
            skip_bytes_of(in, 1);
        } else {
            s->field_len = s->bom > 0 ? sizeof(s->field) + 1 : 0;
            s->bom = 3;
        }
    }
}

int sse_next(struct sse *s, struct str *in, struct str *ret, struct err *e)
{
    int rc = SSE_MORE;

    pass_bom(s, in);
    while (in->len > 0 && rc == SSE_MORE) {
        if (s->told) {
            s->told = false;
            s->name_len = 0;
            s->name[0] = 0;
        }
        rc = step_line(s, in, ret, e);
    }
    return rc;
}
