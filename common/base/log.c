/* The log (log.h): one line per event on stderr, as text (key=value) or JSON, written by one
 * write(), so that lines of several processes never mix. Lines are limited per text and second. The
 * next line that passes has the number of suppressed ones. Under systemd a priority precedes each
 * line. */

#include "common/base/log.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"

/* LINE_USUAL: space that most lines need. */
enum { LOG_LINE_MAX = 4096, LINE_USUAL = 512 };

static struct {
    const char *role;
    enum log_level max;
    enum log_format format;
    bool journald;
    unsigned per_second; /* 0: no limit */
    void (*suppressed)(void *ctx);
    void *ctx;
} setup = {.role = "rollgate", .max = LOG_INFO};

/* Counts by the address of the line's text. Two texts that share a slot replace each other. */
static struct {
    const char *msg;
    struct log_limit limit;
} sites[256];

static const char *const names[] = {"error", "warn", "info", "debug"};
static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};

void log_setup(const char *role, enum log_level max, enum log_format format)
{
    setup.role = role;
    setup.max = max;
    setup.format = format;
    setup.journald = getenv("JOURNAL_STREAM") != NULL;
    check_set_log(role, format == LOG_JSON, setup.journald);
}

bool log_is_json(void)
{
    return setup.format == LOG_JSON;
}

void log_limit_setup(unsigned per_second, void (*suppressed)(void *ctx), void *ctx)
{
    setup.per_second = per_second;
    setup.suppressed = suppressed;
    setup.ctx = ctx;
}

/* Reports whether this line may be written. If so, *ret_dropped is the number of suppressed lines
 * before it. */
static bool passes_limit(const char *msg, unsigned *ret_dropped)
{
    size_t i = (((uintptr_t)msg * UINT64_C(0x9e3779b97f4a7c15)) >> 32) %
               (sizeof(sites) / sizeof(sites[0]));

    *ret_dropped = 0;
    if (setup.per_second == 0)
        return true;
    if (sites[i].msg != msg) {
        sites[i].msg = msg;
        sites[i].limit = (struct log_limit){0};
    }
    if (log_limit_pass(&sites[i].limit, setup.per_second, ret_dropped))
        return true;
    if (setup.suppressed)
        setup.suppressed(setup.ctx);
    return false;
}

bool log_enabled(enum log_level level)
{
    return level <= setup.max;
}

/* Returns the length of the UTF-8 character that begins here; 0: the bytes are not a character. */
static size_t character_bytes(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t n = p[0] < 0xc2 ? 0 : (p[0] < 0xe0 ? 2 : (p[0] < 0xf0 ? 3 : (p[0] < 0xf5 ? 4 : 0)));

    if (n == 0 || n > s.len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0; /* an overlong form, a surrogate, or beyond Unicode */
    return n;
}

/* Appends the non-ASCII character at the front of s. Bytes that are not a character become U+FFFD,
 * because JSON is UTF-8. Returns the number of bytes read. */
static size_t add_character(struct buf *b, struct str s)
{
    size_t n = character_bytes(s);

    if (n)
        buf_add_str(b, str_sub(s, 0, n));
    else
        buf_puts(b, "\\ufffd");
    return n ? n : 1;
}

/* Appends text with quotes, backslashes and control characters escaped, as JSON or as text
 * requires. */
static void add_escaped_value(struct buf *b, struct str s, bool json)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (json && c >= 0x80)
            i += add_character(b, str_sub(s, i, s.len - i)) - 1;
        else if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(b, json ? "\\u%04x" : "\\x%02x", c);
        else
            buf_add_c(b, (char)c);
    }
}

/* Reports whether the text needs no quotes in key=value form. */
static bool needs_no_quotes(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c <= 0x20 || c == '"' || c == '\\' || c == '=' || c == 0x7f)
            return false;
    }
    return s.len > 0;
}

/* Appends one field. Avoids printf, because a call's line has twelve fields. */
static void add_field(struct buf *b, const struct log_field *f)
{
    bool json = setup.format == LOG_JSON;

    if (json)
        buf_puts(b, b->p[b->len - 1] == '{' ? "\"" : ",\"");
    else
        buf_add_c(b, ' ');
    buf_puts(b, f->key);
    buf_puts(b, json ? "\":" : "=");
    switch (f->type) {
    case LOG_INT:
        buf_add_i64(b, f->i);
        break;
    case LOG_UINT:
        buf_add_u64(b, (uint64_t)f->i);
        break;
    default:
        if (!json && needs_no_quotes(f->s)) {
            buf_add_str(b, f->s);
            break;
        }
        buf_add_c(b, '"');
        add_escaped_value(b, f->s, json);
        buf_add_c(b, '"');
    }
}

/* Appends time (UTC), level, role, process and message. */
static void add_head(struct buf *b, enum log_level level, const char *msg)
{
    struct timespec now;
    struct tm tm;
    char day[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    if (setup.journald)
        buf_puts(b, priorities[level]);
    if (setup.format == LOG_JSON) {
        buf_printf(b,
                   "{\"ts\":\"%s.%03ldZ\",\"level\":\"%s\",\"role\":\"%s\",\"pid\":%d,\"msg\":\"",
                   day, now.tv_nsec / 1000000, names[level], setup.role, (int)getpid());
        add_escaped_value(b, str_cstr(msg), true);
        buf_add_c(b, '"');
    } else {
        buf_printf(b, "%s.%03ldZ %s %s %d %s", day, now.tv_nsec / 1000000, names[level], setup.role,
                   (int)getpid(), msg);
    }
}

/* If a field would make the line longer than LOG_LINE_MAX, the line has the field's name but not
 * its value. */
void log_write(enum log_level level, const struct log_scope *scope, const char *msg,
               const struct log_field *fields)
{
    bool json = setup.format == LOG_JSON;
    struct buf b = {0};
    unsigned dropped;

    if (level > setup.max || !passes_limit(msg, &dropped))
        return;
    (void)buf_reserve(&b, LINE_USUAL);
    add_head(&b, level, msg);
    if (scope && scope->session.len)
        add_field(&b, &LOG_S("session", scope->session));
    if (scope && scope->request.len)
        add_field(&b, &LOG_S("request", scope->request));
    if (json && dropped > 0)
        add_field(&b, &LOG_U("suppressed", dropped));
    if (json)
        buf_puts(&b, ",\"fields\":{");
    for (; fields->type != LOG_END; fields++) {
        size_t before = b.len;

        add_field(&b, fields);
        if (b.len > LOG_LINE_MAX - 64) {
            b.len = before; /* the line must stay one whole record, so leave the long field out */
            add_field(&b, &LOG_T(fields->key, "(too long)"));
        }
    }
    if (!json && dropped > 0)
        add_field(&b, &LOG_U("suppressed", dropped));
    buf_puts(&b, json ? "}}\n" : "\n");
    if (write(STDERR_FILENO, b.p, b.len) < 0) {
        /* stderr is closed: the line is lost, and the work continues */
    }
    buf_done(&b);
}

/* Returns false if this second's lines are used up. */
bool log_limit_pass(struct log_limit *l, unsigned per_second, unsigned *ret_dropped)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != l->second) {
        l->second = now.tv_sec;
        l->count = 0;
    }
    if (l->count >= per_second) {
        l->dropped++;
        return false;
    }
    l->count++;
    *ret_dropped = l->dropped;
    l->dropped = 0;
    return true;
}
