/* str methods that search or cut text. Python counts in code points, the text is UTF-8. Positions
 * are found as byte offsets and converted: search_window converts arguments, pystr_len results. Cut
 * pieces are slices of the receiver, not copies, and keep its mark of HTML. */
#include "worker/text/template/callable.h"
#include "worker/text/template/method_str.h"
#include "worker/text/template/pystr.h"

/* Converts a position of Python: negative ones count from the end, and none is before the first
 * character. */
static int64_t from_front(int64_t at, int64_t len)
{
    return MAX_OF(at < 0 ? at + len : at, 0);
}

/* Computes self[start:end] for find_position() and its family. *base: number of code points before
 * it. *empty: start is after the end, so that nothing matches, not even "". Returns false on
 * error. */
static bool search_window(struct template_run *r, struct value self, const struct value *a,
                          struct str *ret, int64_t *base, bool *empty)
{
    struct str s = v_bytes(self);
    int64_t start, end, len;
    size_t from, to;

    *base = 0;
    *empty = false;
    *ret = s;
    if (!run_spend(r, s.len / 64))
        return false;
    if (a[0].t == V_MISSING && a[1].t == V_MISSING)
        return true;
    len = (int64_t)pystr_len(s);
    if (!arg_int(r, a[0], 0, &start) || !arg_int(r, a[1], len, &end))
        return false;
    start = from_front(start, len);
    end = MIN_OF(from_front(end, len), len);
    *empty = start > end;
    start = MIN_OF(start, end);
    from = pystr_offset(s, 0, (size_t)start);
    to = pystr_offset(s, from, (size_t)(end - start));
    *ret = str_sub(s, from, to - from);
    *base = start;
    return true;
}

/* Returns the position of the last `needle`, or SIZE_MAX. Also returns SIZE_MAX, with the exception
 * set, if the budget is spent: each position where the first byte fits is compared. */
static size_t find_last(struct template_run *r, struct str s, struct str needle)
{
    size_t at = s.len - MIN_OF(needle.len, s.len) + 1;
    const char *hit;

    if (needle.len > s.len)
        return SIZE_MAX;
    if (needle.len == 0)
        return s.len;
    while ((hit = memrchr(s.p, needle.p[0], at)) != NULL) {
        if (!run_spend(r, (at - (size_t)(hit - s.p)) / 64 + needle.len / 64 + 1))
            return SIZE_MAX;
        at = (size_t)(hit - s.p);
        if (memcmp(hit, needle.p, needle.len) == 0)
            return at;
    }
    (void)run_spend(r, at / 64);
    return SIZE_MAX;
}

/* Computes find and rfind: the position in code points of the whole text, or -1. */
static struct value find_position(struct template_run *r, struct value self, struct value *a,
                                  bool last)
{
    struct str s, needle;
    int64_t base;
    bool empty;
    size_t at;

    if (!arg_str(r, a[0], &needle) || !search_window(r, self, a + 1, &s, &base, &empty))
        return v_err();
    if (!run_spend(r, (s.len + needle.len) / 8))
        return v_err();
    at = empty ? SIZE_MAX : last ? find_last(r, s, needle) : str_find(s, needle, 0);
    if (at == SIZE_MAX)
        return r->budget.over ? v_err() : v_int(-1);
    return v_int(base + (int64_t)pystr_len(str_sub(s, 0, at)));
}

static struct value m_find(struct template_run *r, struct value self, struct value *a)
{
    return find_position(r, self, a, false);
}

static struct value m_rfind(struct template_run *r, struct value self, struct value *a)
{
    return find_position(r, self, a, true);
}

static struct value return_found(struct template_run *r, struct value v)
{
    return v.t == V_INT && v.i < 0 ? run_fail(r, "ValueError", "substring not found") : v;
}

static struct value m_index(struct template_run *r, struct value self, struct value *a)
{
    return return_found(r, find_position(r, self, a, false));
}

static struct value m_rindex(struct template_run *r, struct value self, struct value *a)
{
    return return_found(r, find_position(r, self, a, true));
}

/* Counts occurrences that do not overlap. An empty text occurs before each character and at the
 * end. */
static struct value m_count(struct template_run *r, struct value self, struct value *a)
{
    struct str s, needle;
    int64_t base, n = 0;
    bool empty;

    if (!arg_str(r, a[0], &needle) || !search_window(r, self, a + 1, &s, &base, &empty))
        return v_err();
    if (empty)
        return v_int(0);
    if (needle.len == 0)
        return v_int((int64_t)pystr_len(s) + 1);
    for (size_t at = 0; (at = str_find(s, needle, at)) != SIZE_MAX; at += needle.len) {
        if (!run_spend(r, 2))
            return v_err();
        n++;
    }
    return v_int(n);
}

/* Computes startswith and endswith, which accept one text or a tuple of them. */
static struct value match_affix(struct template_run *r, struct value self, struct value *a,
                                bool end)
{
    struct list one = {.at = a, .n = 1};
    struct list *l = a[0].t == V_TUPLE ? list_need(r->a, a[0].list) : &one;
    struct str s, t;
    int64_t base;
    bool empty, hit = false;

    if (!search_window(r, self, a + 1, &s, &base, &empty))
        return v_err();
    for (uint32_t i = 0; i < l->n && !hit; i++) {
        if (l->at[i].t == V_UNDEF)
            return run_undefined(r, l->at[i]);
        if (!arg_str(r, l->at[i], &t) || !run_spend(r, t.len / 64 + 1))
            return v_err();
        hit = !empty && (end ? str_ends(s, t) : str_starts(s, t));
    }
    return v_bool(hit);
}

static struct value m_startswith(struct template_run *r, struct value self, struct value *a)
{
    return match_affix(r, self, a, false);
}

static struct value m_endswith(struct template_run *r, struct value self, struct value *a)
{
    return match_affix(r, self, a, true);
}

/* --- cutting --- */

static bool add_slice(struct template_run *r, struct list_builder *b, struct value self,
                      size_t from, size_t to)
{
    return run_spend_text(r, to - from, 0) &&
           builder_add(r, b, v_like(v_str(str_of(self.s + from, to - from)), self));
}

/* Splits at white space. The rest after `max` cuts keeps its spaces, except those at its front. */
static bool split_words(struct template_run *r, struct value self, int64_t max,
                        struct list_builder *b)
{
    struct str rest = pystr_strip(v_bytes(self), 1);

    while (rest.len) {
        size_t at = 0, start = 0;

        if (max >= 0 && b->n == (uint64_t)max) {
            return add_slice(r, b, self, (size_t)(rest.p - self.s),
                             (size_t)(rest.p - self.s) + rest.len);
        }
        while (at < rest.len) {
            start = at;
            if (pystr_flags(pystr_next(rest, &at)) & PYSTR_SPACE)
                break;
            start = at;
        }
        if (!add_slice(r, b, self, (size_t)(rest.p - self.s), (size_t)(rest.p - self.s) + start))
            return false;
        rest = pystr_strip(str_sub(rest, start, rest.len), 1);
    }
    return true;
}

/* Splits from the right: the last piece comes first, and split_text() reverses them. */
static bool split_words_right(struct template_run *r, struct value self, int64_t max,
                              struct list_builder *b)
{
    struct str rest = pystr_strip(v_bytes(self), 2);

    while (rest.len) {
        size_t start = rest.len;

        if (max >= 0 && b->n == (uint64_t)max) {
            return add_slice(r, b, self, (size_t)(rest.p - self.s),
                             (size_t)(rest.p - self.s) + rest.len);
        }
        while (start > 0) {
            size_t at = start - 1;
            size_t next;

            while (at > 0 && ((unsigned char)rest.p[at] & 0xc0) == 0x80)
                at--;
            next = at;
            if (pystr_flags(pystr_next(rest, &next)) & PYSTR_SPACE)
                break;
            start = at;
        }
        if (!add_slice(r, b, self, (size_t)(rest.p - self.s) + start,
                       (size_t)(rest.p - self.s) + rest.len))
            return false;
        rest = pystr_strip(str_sub(rest, 0, start), 2);
    }
    return true;
}

/* Splits at separators. The rest after `max` cuts is one piece. */
static bool split_at(struct template_run *r, struct value self, struct str sep, int64_t max,
                     struct list_builder *b)
{
    size_t from = 0, hit;

    while ((max < 0 || b->n < (uint64_t)max) &&
           (hit = str_find(v_bytes(self), sep, from)) != SIZE_MAX) {
        if (!add_slice(r, b, self, from, hit))
            return false;
        from = hit + sep.len;
    }
    return add_slice(r, b, self, from, self.n);
}

/* Splits at `sep` from the right, last piece first. */
static bool split_at_right(struct template_run *r, struct value self, struct str sep, int64_t max,
                           struct list_builder *b)
{
    size_t end = self.n, hit;

    while ((max < 0 || b->n < (uint64_t)max) &&
           (hit = find_last(r, str_of(self.s, end), sep)) != SIZE_MAX) {
        if (!add_slice(r, b, self, hit + sep.len, end))
            return false;
        end = hit;
    }
    return add_slice(r, b, self, 0, end);
}

/* Computes split and rsplit: at white space if no separator is given. */
static struct value split_text(struct template_run *r, struct value self, struct value *a,
                               bool right)
{
    struct list_builder b = {0};
    struct str sep = {0};
    int64_t max;
    bool ok;

    if (!arg_int(r, a[1], -1, &max) || !run_spend(r, self.n / 16) ||
        ((a[0].t == V_MISSING || a[0].t == V_NONE) && !run_spend_chars(r, v_bytes(self))))
        return v_err();
    if (a[0].t == V_MISSING || a[0].t == V_NONE) {
        ok = right ? split_words_right(r, self, max, &b) : split_words(r, self, max, &b);
    } else {
        if (!arg_str(r, a[0], &sep))
            return v_err();
        if (sep.len == 0)
            return run_fail(r, "ValueError", "empty separator");
        ok = right ? split_at_right(r, self, sep, max, &b) : split_at(r, self, sep, max, &b);
    }
    if (!ok)
        return v_err();
    for (uint32_t i = 0; right && i < b.n / 2; i++) {
        struct value swap = b.at[i];

        b.at[i] = b.at[b.n - 1 - i];
        b.at[b.n - 1 - i] = swap;
    }
    return builder_list(r, &b);
}

static struct value m_split(struct template_run *r, struct value self, struct value *a)
{
    return split_text(r, self, a, false);
}

static struct value m_rsplit(struct template_run *r, struct value self, struct value *a)
{
    return split_text(r, self, a, true);
}

/* Returns (before, separator, after). If the separator does not occur, the text is the first piece
 * (for rpartition the last) and the others are empty. */
static struct value partition_text(struct template_run *r, struct value self, struct value *a,
                                   bool right)
{
    struct str s = v_bytes(self), sep, part[3];
    struct list *l;
    size_t hit;

    if (!arg_str(r, a[0], &sep))
        return v_err();
    if (sep.len == 0)
        return run_fail(r, "ValueError", "empty separator");
    if (!run_spend(r, s.len / 64))
        return v_err();
    hit = right ? find_last(r, s, sep) : str_find(s, sep, 0);
    if (r->budget.over)
        return v_err();
    part[0] = part[1] = part[2] = STR("");
    if (hit == SIZE_MAX) {
        part[right ? 2 : 0] = s;
    } else {
        part[0] = str_sub(s, 0, hit);
        part[1] = sep;
        part[2] = str_sub(s, hit + sep.len, s.len);
    }
    l = list_new(r->a, 3);
    for (int i = 0; i < 3; i++)
        l->at[i] = v_like(v_str(part[i]), self);
    return v_tuple(l);
}

static struct value m_partition(struct template_run *r, struct value self, struct value *a)
{
    return partition_text(r, self, a, false);
}

static struct value m_rpartition(struct template_run *r, struct value self, struct value *a)
{
    return partition_text(r, self, a, true);
}

/* Returns lines without their ends, or with them if `keepends` is given. */
static struct value m_splitlines(struct template_run *r, struct value self, struct value *a)
{
    struct list_builder b = {0};
    struct str line;
    size_t at = 0, end;
    int64_t keep;

    if (!arg_int(r, a[0], 0, &keep))
        return v_err();
    while (pystr_line(v_bytes(self), &at, &line, &end)) {
        if (keep)
            line.len += end;
        if (!run_spend(r, line.len / 16 + 1) || !builder_add(r, &b, v_like(v_str(line), self)))
            return v_err();
    }
    return builder_list(r, &b);
}

#define IS_METHOD(what)                                                                        \
    static struct value m_is##what(struct template_run *r, struct value self, struct value *a) \
    {                                                                                          \
        (void)a;                                                                               \
        if (!run_spend_chars(r, v_bytes(self)))                                                \
            return v_err();                                                                    \
        return v_bool(pystr_is(v_bytes(self), #what));                                         \
    }

IS_METHOD(alpha)
IS_METHOD(alnum)
IS_METHOD(ascii)
IS_METHOD(decimal)
IS_METHOD(digit)
IS_METHOD(identifier)
IS_METHOD(lower)
IS_METHOD(numeric)
IS_METHOD(printable)
IS_METHOD(space)
IS_METHOD(title)
IS_METHOD(upper)

const struct method str_search_methods[] = {
    {"split", "sep maxsplit", m_split},
    {"startswith", "prefix! start end", m_startswith},
    {"endswith", "suffix! start end", m_endswith},
    {"find", "sub! start end", m_find},
    {"rfind", "sub! start end", m_rfind},
    {"index", "sub! start end", m_index},
    {"rindex", "sub! start end", m_rindex},
    {"count", "sub! start end", m_count},
    {"rsplit", "sep maxsplit", m_rsplit},
    {"partition", "sep!", m_partition},
    {"rpartition", "sep!", m_rpartition},
    {"splitlines", "keepends", m_splitlines},
    {"isalpha", "", m_isalpha},
    {"isalnum", "", m_isalnum},
    {"isascii", "", m_isascii},
    {"isdecimal", "", m_isdecimal},
    {"isdigit", "", m_isdigit},
    {"isidentifier", "", m_isidentifier},
    {"islower", "", m_islower},
    {"isnumeric", "", m_isnumeric},
    {"isprintable", "", m_isprintable},
    {"isspace", "", m_isspace},
    {"istitle", "", m_istitle},
    {"isupper", "", m_isupper},
    {NULL, NULL, NULL},
};
