/* str methods that make text from text, and the reading of their arguments (method_str.h).
 *
 * Everything that can grow checks the memory budget first (run_room), because "x" * n and the like
 * are the usual way to exhaust a sandbox. A receiver that is HTML (Markup) escapes plain arguments
 * (arg_like) and gives results that are HTML (v_like). */
#include "worker/text/template/method_str.h"

#include "common/base/utf8.h"
#include "worker/text/template/callable.h"
#include "worker/text/template/escape.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/pystr.h"
#include "worker/text/template/text_format.h"

/* largest set in bytes: each character of the text is compared with all of them */
enum { STRIP_SET_MAX = 1024 };

bool arg_int(struct template_run *r, struct value v, int64_t dflt, int64_t *ret)
{
    *ret = dflt;
    if (v.t == V_MISSING || v.t == V_NONE)
        return true;
    if (v.t == V_UNDEF)
        return run_undefined(r, v).t != V_ERR;
    if (!v_is_int(v))
        return run_fail(r, "TypeError", "'%s' object cannot be interpreted as an integer",
                        v_type_name(v))
                   .t != V_ERR;
    *ret = v.i;
    return true;
}

bool arg_str(struct template_run *r, struct value v, struct str *ret)
{
    if (v.t != V_STR)
        return run_fail(r, "TypeError", "argument must be str, not %s", v_type_name(v)).t != V_ERR;
    *ret = v_bytes(v);
    return true;
}

bool arg_like(struct template_run *r, struct value v, struct value self, struct str *ret)
{
    struct buf out = {0};

    if (!arg_str(r, v, ret))
        return false;
    if ((self.flags & VF_MARKUP) && !(v.flags & VF_MARKUP)) {
        if (!run_spend_escapes(r, *ret))
            return false;
        escape_html(&out, *ret);
        v = run_take_text(r, &out);
        *ret = v_bytes(v);
    }
    return v.t != V_ERR;
}

#define CASE_METHOD(name, to)                                                            \
    static struct value name(struct template_run *r, struct value self, struct value *a) \
    {                                                                                    \
        (void)a;                                                                         \
        if (!run_spend_chars(r, v_bytes(self)) || !run_room(r, (uint64_t)self.n * 3))    \
            return v_err();                                                              \
        return v_like(v_str(pystr_case(r->a, v_bytes(self), to)), self);                 \
    }

CASE_METHOD(m_upper, PYSTR_TO_UPPER)
CASE_METHOD(m_lower, PYSTR_TO_LOWER)
CASE_METHOD(m_title, PYSTR_TO_TITLE)
CASE_METHOD(m_capitalize, PYSTR_TO_CAPITAL)
CASE_METHOD(m_swapcase, PYSTR_TO_SWAPPED)
CASE_METHOD(m_casefold, PYSTR_TO_FOLDED)

/* Removes white space, or any of the characters of `chars`. which & 1: on the left; & 2: on the
 * right. */
static struct value strip_text(struct template_run *r, struct value self, struct value chars,
                               int which)
{
    struct str set = {0}, left;

    if (chars.t == V_MISSING || chars.t == V_NONE) {
        left = pystr_strip(v_bytes(self), which);
        return run_spend(r, self.n - left.len + 1) ? v_like(v_str(left), self) : v_err();
    }
    if (!arg_like(r, chars, self, &set))
        return v_err();
    if (set.len > STRIP_SET_MAX)
        return run_fail(r, "ValueError", "strip: more than %d bytes of characters", STRIP_SET_MAX);
    if (!run_spend(r, (uint64_t)self.n * set.len / 64))
        return v_err();
    left = pystr_strip_chars(v_bytes(self), set, which);
    return run_spend(r, self.n - left.len + 1) ? v_like(v_str(left), self) : v_err();
}

static struct value m_strip(struct template_run *r, struct value self, struct value *a)
{
    return strip_text(r, self, a[0], 3);
}

static struct value m_lstrip(struct template_run *r, struct value self, struct value *a)
{
    return strip_text(r, self, a[0], 1);
}

static struct value m_rstrip(struct template_run *r, struct value self, struct value *a)
{
    return strip_text(r, self, a[0], 2);
}

/* An empty `old` matches before every character and at the end. */
static void replace_empty(struct buf *out, struct str s, struct str new, int64_t count)
{
    size_t at = 0;

    for (; count != 0; count--) {
        size_t n = at < s.len ? pystr_width((unsigned char)s.p[at]) : 0;

        buf_add_str(out, new);
        buf_add_str(out, str_sub(s, at, n));
        at += n;
        if (n == 0)
            break;
    }
    buf_add_str(out, str_sub(s, at, s.len));
}

/* Reserves memory for the worst case, in which `old` fills all of s. Without a match, returns the
 * receiver itself. */
struct value method_replace(struct template_run *r, struct value self, struct str old,
                            struct str new, int64_t count)
{
    struct str s = v_bytes(self);
    struct buf out = {0};
    size_t at = 0, hit;

    if (new.len > old.len &&
        (!run_room(r, ((uint64_t)s.len / MAX_OF(old.len, (size_t)1) + 1) * new.len + s.len)))
        return v_err();
    if (!run_spend(r, s.len / 16))
        return v_err();
    if (old.len == 0) {
        replace_empty(&out, s, new, count);
        return v_like(run_take_text(r, &out), self);
    }
    for (; count != 0 && (hit = str_find(s, old, at)) != SIZE_MAX; count--) {
        buf_add_str(&out, str_sub(s, at, hit - at));
        buf_add_str(&out, new);
        at = hit + old.len;
    }
    if (at == 0) {
        buf_done(&out);
        return self;
    }
    buf_add_str(&out, str_sub(s, at, s.len));
    return v_like(run_take_text(r, &out), self);
}

/* Computes str.replace. The arguments are escaped if the receiver is HTML. */
static struct value m_replace(struct template_run *r, struct value self, struct value *a)
{
    struct str old = {0}, new = {0};
    int64_t count;

    if (!arg_like(r, a[0], self, &old) || !arg_like(r, a[1], self, &new) ||
        !arg_int(r, a[2], -1, &count))
        return v_err();
    return method_replace(r, self, old, new, count);
}

/* most characters of padding: a string's bytes at four to a character */
#define PAD_MAX ((uint64_t)UINT32_MAX / 4)

/* Pads self with fill characters: `left` of them before and `right` after. */
static struct value pad_text(struct template_run *r, struct value self, uint64_t left,
                             uint64_t right, struct str fill)
{
    struct buf out = {0};

    if (left + right > PAD_MAX || !run_spend(r, (left + right) / 16) ||
        !run_room(r, (left + right) * fill.len + self.n))
        return run_fail(r, "MemoryError", "a string is too long");
    for (uint64_t i = 0; i < left; i++)
        buf_add_str(&out, fill);
    buf_add_str(&out, v_bytes(self));
    for (uint64_t i = 0; i < right; i++)
        buf_add_str(&out, fill);
    return v_like(run_take_text(r, &out), self);
}

/* where: -1 text on the left, 0 centred, 1 on the right */
static struct value justify_text(struct template_run *r, struct value self, struct value *a,
                                 int where)
{
    struct str fill = STR(" ");
    int64_t width;
    uint64_t pad, left;

    if (!arg_int(r, a[0], 0, &width) || (a[1].t != V_MISSING && !arg_like(r, a[1], self, &fill)))
        return v_err();
    if (a[1].t != V_MISSING && pystr_len(fill) != 1)
        return run_fail(r, "TypeError", "The fill character must be exactly one character long");
    pad = pystr_len(v_bytes(self));
    pad = width > 0 && (uint64_t)width > pad ? (uint64_t)width - pad : 0;
    left = where < 0 ? 0 : where > 0 ? pad : pad / 2 + (pad & (uint64_t)width & 1);
    return pad_text(r, self, left, pad - left, fill);
}

static struct value m_ljust(struct template_run *r, struct value self, struct value *a)
{
    return justify_text(r, self, a, -1);
}

static struct value m_center(struct template_run *r, struct value self, struct value *a)
{
    return justify_text(r, self, a, 0);
}

static struct value m_rjust(struct template_run *r, struct value self, struct value *a)
{
    return justify_text(r, self, a, 1);
}

/* The zeros are inserted between the sign and the digits. */
static struct value m_zfill(struct template_run *r, struct value self, struct value *a)
{
    bool sign = self.n && (self.s[0] == '-' || self.s[0] == '+');
    uint64_t len = pystr_len(v_bytes(self));
    struct value rest = v_str(str_sub(v_bytes(self), sign, self.n));
    struct value v;
    int64_t width;

    if (!arg_int(r, a[0], 0, &width))
        return v_err();
    v = pad_text(r, rest, width > 0 && (uint64_t)width > len ? (uint64_t)width - len : 0, 0,
                 STR("0"));
    if (sign && v.t == V_STR)
        v = run_concat(r, v_str(str_sub(v_bytes(self), 0, 1)), v);
    return v;
}

/* Columns are counted in characters and begin again at each line end. */
static struct value m_expandtabs(struct template_run *r, struct value self, struct value *a)
{
    struct buf out = {0};
    int64_t size, column = 0;

    if (!arg_int(r, a[0], 8, &size))
        return v_err();
    if (size > 10000)
        return run_fail(r, "OverflowError", "the tab size is too large");
    if (!run_spend(r, self.n / 16))
        return v_err();
    for (uint32_t i = 0; i < self.n; i++) {
        char c = self.s[i];

        if (c != '\t') {
            buf_add_c(&out, c);
            column += ((unsigned char)c & 0xc0) != 0x80;
            if (c == '\n' || c == '\r')
                column = 0;
            continue;
        }
        for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--, column++)
            buf_add_c(&out, ' ');
        if (!run_spend_text(r, (uint64_t)MAX_OF(size, 0), out.len)) {
            buf_done(&out);
            return v_err();
        }
    }
    return v_like(run_take_text(r, &out), self);
}

/* Returns the text without the prefix, or unchanged. */
static struct value m_removeprefix(struct template_run *r, struct value self, struct value *a)
{
    struct str s = v_bytes(self), p = {0};

    if (!arg_str(r, a[0], &p) || !run_spend(r, p.len / 16))
        return v_err();
    return v_like(v_str(str_starts(s, p) ? str_sub(s, p.len, s.len) : s), self);
}

/* Returns the text without the suffix, or unchanged. */
static struct value m_removesuffix(struct template_run *r, struct value self, struct value *a)
{
    struct str s = v_bytes(self), p = {0};

    if (!arg_str(r, a[0], &p) || !run_spend(r, p.len / 16))
        return v_err();
    return v_like(v_str(str_ends(s, p) ? str_sub(s, 0, s.len - p.len) : s), self);
}

/* Joins strings only. A different type is a TypeError that names its position; HTML joins its text,
 * as markupsafe does. */
static struct value m_join(struct template_run *r, struct value self, struct value *a)
{
    struct buf out = {0};
    struct iter it;
    struct value v;
    int more;

    if (!iter_init(r, &it, a[0]))
        return v_err();
    for (uint32_t i = 0; (more = iter_next(r, &it, &v)) > 0; i++) {
        struct str s;

        if (self.flags & VF_MARKUP)
            v = filter_text(r, v);
        if (v.t != V_STR && v.t != V_ERR)
            (void)run_fail(r, "TypeError", "sequence item %u: expected str instance, %s found", i,
                           v_type_name(v));
        if (v.t != V_STR || !arg_like(r, v, self, &s) ||
            !run_spend_text(r, self.n + s.len, out.len + self.n + s.len)) {
            buf_done(&out);
            return v_err();
        }
        if (i)
            buf_add_str(&out, v_bytes(self));
        buf_add_str(&out, s);
    }
    v = v_like(run_take_text(r, &out), self);
    return more < 0 ? v_err() : v;
}

static struct value m_format(struct template_run *r, struct value self, struct value *a)
{
    return format_braces(r, self, a[0], a[1]);
}

static struct value m_format_map(struct template_run *r, struct value self, struct value *a)
{
    if (a[0].t != V_DICT)
        return run_fail(r, "TypeError", "format_map() needs a mapping");
    return format_braces(r, self, v_tuple(list_new(r->a, 0)), a[0]);
}

/* Appends the replacement of one character: a text, a code point, or None (dropped). */
static bool translate_character(struct template_run *r, struct buf *out, struct value to)
{
    if (to.t == V_STR) {
        buf_add_str(out, v_bytes(to));
    } else if (to.t == V_INT && to.i >= 0 && to.i <= 0x10ffff) {
        out->len += utf8_encode(buf_reserve(out, 4), (uint32_t)to.i);
    } else if (to.t != V_NONE) {
        (void)run_fail(r, "TypeError", "character mapping must return integer, None or str");
        return false;
    }
    return run_room(r, out->len);
}

/* Looks up each character by its code point. Characters that the table does not have are kept. */
static struct value m_translate(struct template_run *r, struct value self, struct value *a)
{
    struct str s = v_bytes(self);
    struct buf out = {0};

    if (a[0].t != V_DICT)
        return run_fail(r, "TypeError", "translate() needs a mapping");
    for (size_t at = 0; at < s.len;) {
        size_t from = at;
        struct dict_entry *e = dict_find(r, a[0].dict, v_int(pystr_next(s, &at)));

        if (!run_spend(r, 1)) {
            buf_done(&out);
            return v_err();
        }
        if (!e) {
            buf_add_str(&out, str_sub(s, from, at - from));
        } else if (!translate_character(r, &out, e->value)) {
            buf_done(&out);
            return v_err();
        }
    }
    return v_like(run_take_text(r, &out), self);
}

static struct value m_encode(struct template_run *r, struct value self, struct value *a)
{
    (void)self;
    (void)a;
    return run_fail(r, "NotImplementedError", "bytes are not supported (str.encode)");
}

const struct method str_methods[] = {
    {"strip", "chars", m_strip},
    {"lstrip", "chars", m_lstrip},
    {"rstrip", "chars", m_rstrip},
    {"replace", "old! new! count", m_replace},
    {"upper", "", m_upper},
    {"lower", "", m_lower},
    {"casefold", "", m_casefold},
    {"title", "", m_title},
    {"capitalize", "", m_capitalize},
    {"swapcase", "", m_swapcase},
    {"join", "iterable!", m_join},
    {"format", "* **", m_format},
    {"format_map", "mapping!", m_format_map},
    {"ljust", "width! fillchar", m_ljust},
    {"center", "width! fillchar", m_center},
    {"rjust", "width! fillchar", m_rjust},
    {"zfill", "width!", m_zfill},
    {"expandtabs", "tabsize", m_expandtabs},
    {"removeprefix", "prefix!", m_removeprefix},
    {"removesuffix", "suffix!", m_removesuffix},
    {"translate", "table!", m_translate},
    {"encode", "encoding errors", m_encode},
    {NULL, NULL, NULL},
};
