/*
 * The checks in their order. The setting "off" refuses everything. A path without a plain spelling
 * is refused, because engines may read it differently. A path that samples is refused even to
 * admins, whatever is configured. Other paths are compared with the lists. Sampling paths are
 * recognized by the words in their segments and not by whole paths, because engines keep adding
 * routes that end in the same words.
 */
#include "worker/engine/pool/doors.h"

#include <stddef.h>

#include "common/base/attrs.h"

/* Reports whether an entry allows the request. It is `/path`, for GET and POST, or `METHOD
 * /path`. */
static bool entry_allows(struct str entry, const struct door_request *q)
{
    size_t blank = str_find(entry, STR(" "), 0);
    struct str method = str_sub(entry, 0, blank);

    if (blank == SIZE_MAX)
        return (str_eq_c(q->method, "GET") || str_eq_c(q->method, "POST")) &&
               str_eq(entry, q->path);
    return str_eq(method, q->method) && str_eq(str_trim(str_sub(entry, blank, SIZE_MAX)), q->path);
}

static bool list_allows(const char *list, const struct door_request *q)
{
    struct str rest = str_cstr(list), entry;

    while ((entry = str_trim(str_cut(&rest, ','))).p) {
        if (entry_allows(entry, q))
            return true;
    }
    return false;
}

static bool list_has(const char *list, struct str word)
{
    struct str rest = str_cstr(list), entry;

    while ((entry = str_trim(str_cut(&rest, ','))).p) {
        if (str_eq(entry, word))
            return true;
    }
    return false;
}

/* Accepts only one spelling of a path: segments of letters, digits and `_.-~:@+`, none empty except
 * the last, none that begins or ends with a dot. Engines might read other spellings in any way, so
 * they never get them. */
static bool is_plain(struct str path)
{
    static const char marks[] = "_.-~:@+";
    char before = '/';

    if (path.len == 0 || path.p[0] != '/')
        return false;
    for (size_t i = 1; i < path.len; i++) {
        char c = path.p[i];
        bool edge = c == '/' || c == '.';

        if (edge && (before == '/' || (c == '/' && before == '.')))
            return false;
        if (c != '/' && !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || (c && strchr(marks, c))))
            return false;
        before = c;
    }
    return before != '.';
}

static bool starts_nocase(struct str s, struct str with)
{
    return s.len >= with.len && str_eq_nocase(str_sub(s, 0, with.len), with);
}

static bool ends_nocase(struct str s, struct str with)
{
    return s.len >= with.len && str_eq_nocase(str_sub(s, s.len - with.len, with.len), with);
}

/* Reports whether a segment means sampling, for any of the engines and proxies: /generate,
 * /inference/v1/generate, /vertex_generate, /api/chat, /infill, /invocations ... */
static bool segment_samples(struct str segment)
{
    static const struct str names[] = {
        STR_LIT("chat"),     STR_LIT("completion"),     STR_LIT("completions"),
        STR_LIT("infill"),   STR_LIT("invocations"),    STR_LIT("responses"),
        STR_LIT("messages"), STR_LIT("transcriptions"), STR_LIT("translations"),
        STR_LIT("realtime"), STR_LIT("interactions"),   STR_LIT("predict"),
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eq_nocase(segment, names[i]))
            return true;
    }
    return starts_nocase(segment, STR("generate")) || starts_nocase(segment, STR("generation")) ||
           ends_nocase(segment, STR("generate")) || ends_nocase(segment, STR("generatecontent"));
}

static bool is_sampler_path(struct str path)
{
    while (path.len > 0) {
        if (segment_samples(str_cut(&path, '/')))
            return true;
    }
    return false;
}

/* Refuses a path that agents may not call. */
static int refuse_path(const struct door_request *q, struct err *e)
{
    if (!q->keyless)
        return err_set(e, ERR_WRONG_SCOPE, "this path of the engine takes an admin key");
    return err_set(e, ERR_NOT_FOUND,
                   "no such path; a path of the engine passes when --passthrough names it");
}

int door_check(const struct door_request *q, struct err *e)
{
    if (str_eq_c(str_cstr(q->setting), "off"))
        return err_set(e, ERR_NOT_FOUND, "no such path");
    if (!is_plain(q->path) && !q->admin)
        return refuse_path(q, e);
    if (!q->reads)
        return err_set(e, ERR_NOT_FOUND, "no such path; the engine has none of its own");
    if (!is_plain(q->path))
        return err_set(e, ERR_INVALID,
                       "the engine's path must be spelt plainly: no escapes, no "
                       "empty or dotted segments");
    if (is_sampler_path(q->path))
        return err_set(e, ERR_WRONG_SCOPE,
                       "this path of the engine samples tokens that no session would record: use "
                       "chat/completions, responses, messages or completions");
    if (q->admin || list_allows(q->setting, q) ||
        (list_has(q->setting, STR("read")) && list_allows(q->reads, q)))
        return 0;
    return refuse_path(q, e);
}

static bool is_method(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] < 'A' || s.p[i] > 'Z')
            return false;
    }
    return s.len > 0;
}

static int entry_check(struct str entry, struct err *e)
{
    size_t blank = str_find(entry, STR(" "), 0);
    struct str path = blank == SIZE_MAX ? entry : str_trim(str_sub(entry, blank, SIZE_MAX));

    if (str_eq_c(entry, "read"))
        return 0;
    if (!is_plain(path) || (blank != SIZE_MAX && !is_method(str_sub(entry, 0, blank))))
        return err_set(e, ERR_CONFIG,
                       "'%.*s' is not off, or a list by commas of read, /path and METHOD /path",
                       (int)MIN_OF(entry.len, (size_t)80), entry.p);
    if (is_sampler_path(path))
        return err_set(e, ERR_CONFIG, "%.*s samples tokens that no session would record",
                       (int)MIN_OF(path.len, (size_t)80), path.p);
    return 0;
}

int door_setting_check(const char *setting, struct err *e)
{
    struct str rest = str_cstr(setting), entry;

    if (str_eq_c(rest, "off"))
        return 0;
    while ((entry = str_trim(str_cut(&rest, ','))).p) {
        if (entry_check(entry, e))
            return -1;
    }
    return 0;
}
