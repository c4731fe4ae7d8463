/* One pass over the text. At each position the first rule that matches copies what may be kept and
 * skips the secret (redaction.h). */
#include "common/proc/redaction.h"

#include <ctype.h>

static const char HIDDEN[] = "***";

/* Returns the number of bytes from `from` up to one of the ends or a blank. */
static size_t span_until(struct str s, size_t from, const char *ends)
{
    size_t n = from;

    while (n < s.len && (unsigned char)s.p[n] > ' ') {
        for (const char *e = ends; *e; e++) {
            if (s.p[n] == *e)
                return n - from;
        }
        n++;
    }
    return n - from;
}

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Handles "://": copies the authority without its user, then *** for path and query. Returns the
 * number of bytes read. */
static size_t add_address(struct str s, struct buf *out)
{
    size_t n = span_until(s, 3, "/?#,;\"'`)]}<>"), user = n;
    size_t more;

    if (n > 0 && s.p[3] == '[') /* an IPv6 address */
        n = span_until(s, 3, "/?#,;\"'`)}<>");
    buf_puts(out, "://");
    while (user > 0 && s.p[3 + user - 1] != '@')
        user--;
    if (user > 0)
        buf_printf(out, "%s@", HIDDEN);
    buf_add_str(out, str_sub(s, 3 + user, n - user));
    if (n == 0)
        return 3; /* file:///path is the name of a file */
    more = span_until(s, 3 + n, ",;\"'`)]}<>");
    if (more > 1)
        buf_printf(out, "/%s", HIDDEN);
    else
        buf_add_str(out, str_sub(s, 3 + n, more));
    return 3 + n + more;
}

/* Reports whether the last word of a name means that its value is secret. */
static bool is_secret_name(struct str name)
{
    static const char *const all[] = {"key",        "apikey", "password", "passwd",
                                      "pass",       "secret", "token",    "authorization",
                                      "credential", "auth",   "cookie",   "signature"};
    size_t at = name.len;
    struct str last;

    while (at > 0 && name.p[at - 1] != '-' && name.p[at - 1] != '_')
        at--;
    last = str_sub(name, at, name.len - at);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (str_eq_nocase(last, str_cstr(all[i])))
            return true;
    }
    return false;
}

/* Copies a name, and *** for its value if that is secret. Returns the number of bytes read. */
static size_t add_assignment(struct str s, struct buf *out)
{
    size_t n = 0, at, len;
    bool header;

    while (n < s.len && is_word_byte(s.p[n]))
        n++;
    buf_add_str(out, str_sub(s, 0, n));
    at = n + (n < s.len && s.p[n] == '"');
    if (!is_secret_name(str_sub(s, 0, n)) || at >= s.len || (s.p[at] != '=' && s.p[at] != ':'))
        return n;
    header = s.p[at] == ':';
    at++;
    while (at < s.len && (s.p[at] == ' ' || s.p[at] == '"' || s.p[at] == '\''))
        at++;
    len = span_until(s, at, header ? "\"" : ",;&\"'");
    /* either "Bearer x" of a header, or a word of a sentence */
    while (header && at + len < s.len && s.p[at + len] == ' ')
        len += 1 + span_until(s, at + len + 1, "\"");
    buf_add_str(out, str_sub(s, n, at - n));
    if (len)
        buf_puts(out, HIDDEN);
    return at + len;
}

/* Handles "rga-...", "rgr-...", "rgx-...", "Bearer ...": copies the head. Returns the number of
 * bytes of head and secret; 0: no such secret begins here. */
static size_t add_key(struct str s, struct buf *out)
{
    bool ours = s.len > 4 && s.p[0] == 'r' && s.p[1] == 'g' && s.p[3] == '-' &&
                (s.p[2] == 'a' || s.p[2] == 'r' || s.p[2] == 'x');
    bool bearer = s.len > 7 && str_eq_nocase(str_sub(s, 0, 7), STR("Bearer "));
    size_t head = ours ? 4 : 7;

    if (!ours && !bearer)
        return 0;
    buf_add_str(out, str_sub(s, 0, head));
    buf_puts(out, HIDDEN);
    return head + span_until(s, head, ",;\"'<>");
}

void redaction_add(struct str text, struct buf *out)
{
    size_t at = 0;
    bool in_word = false;

    while (at < text.len) {
        struct str rest = str_sub(text, at, text.len - at);
        size_t n = 0;

        if (str_starts(rest, STR("://")))
            n = add_address(rest, out);
        else if (!in_word && is_word_byte(rest.p[0]) && !(n = add_key(rest, out)))
            n = add_assignment(rest, out);
        if (n == 0) {
            buf_add_c(out, rest.p[0]);
            n = 1;
        }
        at += n;
        in_word = is_word_byte(text.p[at - 1]);
    }
}
