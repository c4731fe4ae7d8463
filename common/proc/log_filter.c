/* Both formats are read into one struct of borrowed texts, which is then written (log_filter.h). */
#include "common/proc/log_filter.h"

#include <ctype.h>

#include "common/base/arena.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "common/proc/redaction.h"

enum { FIELDS_MAX = 64 };

struct filtered_field {
    struct str key, value; /* value: decoded text, or digits */
};

struct filtered_line {
    struct str ts, level, role, pid, msg;
    struct filtered_field fields[FIELDS_MAX];
    size_t n;
};

static bool is_number(struct str s)
{
    size_t i = s.len > 1 && s.p[0] == '-';

    if (s.len > i + 1 && s.p[i] == '0')
        return false; /* numbers such as 007 are not valid JSON */
    for (; i < s.len; i++) {
        if (!isdigit((unsigned char)s.p[i]))
            return false;
    }
    return s.len > 0 && s.len < 21;
}

/* Matches 2026-01-31T00:00:00.000Z. */
static bool is_time(struct str s)
{
    static const char form[] = "0000-00-00T00:00:00.000Z";

    if (s.len != sizeof(form) - 1)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (form[i] == '0' ? !isdigit((unsigned char)s.p[i]) : s.p[i] != form[i])
            return false;
    }
    return true;
}

static bool is_level(struct str s)
{
    return str_eq_c(s, "error") || str_eq_c(s, "warn") || str_eq_c(s, "info") ||
           str_eq_c(s, "debug");
}

/* Matches the name of a process or field: small letters, digits, '-' and '_'. */
static bool is_log_name(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!islower((unsigned char)s.p[i]) && !isdigit((unsigned char)s.p[i]) && s.p[i] != '-' &&
            s.p[i] != '_')
            return false;
    }
    return s.len > 0 && s.len <= 40;
}

/* --- reading --- */

static void add_field(struct filtered_line *l, struct str key, struct str value)
{
    if (l->n < FIELDS_MAX && is_log_name(key))
        l->fields[l->n++] = (struct filtered_field){key, value};
}

static bool read_json(struct str line, struct arena *a, struct filtered_line *l)
{
    const struct json *v, *fields;
    struct err e;

    if (json_parse(a, line, &v, &e) || !json_is(v, JSON_OBJECT))
        return false;
    l->ts = json_string(json_get(v, "ts"));
    l->level = json_string(json_get(v, "level"));
    l->role = json_string(json_get(v, "role"));
    l->pid = json_text(json_get(v, "pid"));
    l->msg = json_string(json_get(v, "msg"));
    if (json_get(v, "session"))
        add_field(l, STR("session"), json_string(json_get(v, "session")));
    if (json_get(v, "request"))
        add_field(l, STR("request"), json_string(json_get(v, "request")));
    fields = json_get(v, "fields");
    for (size_t i = 0; json_is(fields, JSON_OBJECT) && i < fields->n; i++) {
        const struct json *value = &fields->members[i].value;

        add_field(l, json_string(&fields->members[i].key),
                  json_is(value, JSON_STRING) ? json_string(value) : json_text(value));
    }
    return true;
}

/* Removes the next word, which one blank follows. */
static struct str cut_log_word(struct str *rest)
{
    size_t end = MIN_OF(str_find(*rest, STR(" "), 0), rest->len);
    struct str word = str_sub(*rest, 0, end);

    *rest = str_sub(*rest, MIN_OF(end + 1, rest->len), SIZE_MAX);
    return word;
}

/* Returns the length of " key=" at the front of s; 0: no field begins here. */
static size_t field_head(struct str s)
{
    size_t n = 1;

    if (s.len < 3 || s.p[0] != ' ')
        return 0;
    while (n < s.len &&
           (islower((unsigned char)s.p[n]) || isdigit((unsigned char)s.p[n]) || s.p[n] == '_'))
        n++;
    return n > 1 && n < s.len && s.p[n] == '=' ? n + 1 : 0;
}

/* Reads key=value pairs; quotes and backslashes within quotes are escaped. */
static void read_fields(struct str rest, struct filtered_line *l)
{
    size_t head;

    while ((head = field_head(rest)) > 0) {
        struct str key = str_sub(rest, 1, head - 2);
        size_t n = head;

        if (n < rest.len && rest.p[n] == '"') {
            for (n++; n < rest.len && rest.p[n] != '"'; n++)
                n += rest.p[n] == '\\';
            add_field(l, key, str_sub(rest, head + 1, MIN_OF(n, rest.len) - head - 1));
            n++;
        } else {
            while (n < rest.len && rest.p[n] != ' ')
                n++;
            add_field(l, key, str_sub(rest, head, n - head));
        }
        rest = str_sub(rest, MIN_OF(n, rest.len), SIZE_MAX);
    }
}

static bool read_text(struct str line, struct filtered_line *l)
{
    size_t n = 0;

    l->ts = cut_log_word(&line);
    l->level = cut_log_word(&line);
    l->role = cut_log_word(&line);
    l->pid = cut_log_word(&line);
    while (n < line.len && !field_head(str_sub(line, n, SIZE_MAX)))
        n++;
    l->msg = str_sub(line, 0, n);
    read_fields(str_sub(line, n, SIZE_MAX), l);
    return true;
}

/* --- writing --- */

/* Matches ids that this gateway made: w0-32hex of a session, req-16hex of a request. */
static bool is_own_id(struct str key, struct str value)
{
    uint32_t index;

    if (str_eq_c(key, "session") || str_eq_c(key, "session_id"))
        return ids_parse(value, &index) == 0;
    if (!str_eq_c(key, "request") || value.len != 20 || !str_starts(value, STR("req-")))
        return false;
    for (size_t i = 4; i < value.len; i++) {
        if (!isxdigit((unsigned char)value.p[i]))
            return false;
    }
    return true;
}

/* Matches keys whose values are words of ours in the lines of every process. */
static bool is_word_key(struct str key)
{
    static const char *const all[] = {"outcome", "kind",   "dialect", "cause", "half",
                                      "basis",   "stream", "process", "limit", "state"};

    return str_is_one_of(key, all, ARRAY_LEN(all));
}

/* Reports whether the text is the supervisor's own. A line of a different program that it passes on
 * is not. */
static bool is_own_text(const struct filtered_line *l, const struct filtered_field *f)
{
    bool supervisor = str_eq_c(l->role, "supervisor") || str_eq_c(l->role, "rollgate");

    if (is_own_id(f->key, f->value))
        return true;
    return supervisor ? !str_eq_c(f->key, "line") : is_word_key(f->key) && is_log_name(f->value);
}

static void add_value(const struct filtered_line *l, const struct filtered_field *f,
                      struct json_out *o)
{
    struct buf kept = {0};

    if (is_number(f->value)) {
        json_out_raw(o, f->value);
        return;
    }
    if (is_own_text(l, f) && utf8_valid(f->value))
        redaction_add(f->value, &kept);
    else
        buf_puts(&kept, "(removed)");
    json_out_str(o, buf_str(&kept));
    buf_done(&kept);
}

static void write_line(const struct filtered_line *l, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_str(&o, "ts", l->ts);
    json_out_member_str(&o, "level", l->level);
    json_out_member_str(&o, "role", l->role);
    json_out_member_raw(&o, "pid", l->pid);
    json_out_member_str(&o, "msg", l->msg);
    json_out_member_obj(&o, "fields");
    for (size_t i = 0; i < l->n; i++) {
        json_out_key_str(&o, l->fields[i].key);
        add_value(l, &l->fields[i], &o);
    }
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    buf_add_c(out, '\n');
}

/* Matches messages, which are constants of ours: letters, digits and a few marks. */
static bool is_message(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.p[i] < ' ' || (unsigned char)s.p[i] > '~')
            return false;
    }
    return s.len > 0 && s.len <= 200;
}

bool log_filter_add(struct str line, struct buf *out)
{
    struct filtered_line l = {0};
    struct arena a = {0};
    bool good;

    if (line.len > 3 && line.p[0] == '<' && line.p[2] == '>') /* the priority for journald */
        line = str_sub(line, 3, SIZE_MAX);
    good = line.len > 0 && (line.p[0] == '{' ? read_json(line, &a, &l) : read_text(line, &l));
    good = good && is_time(l.ts) && is_level(l.level) && is_log_name(l.role) && is_number(l.pid) &&
           is_message(l.msg);
    if (good)
        write_line(&l, out);
    arena_done(&a);
    return good;
}
