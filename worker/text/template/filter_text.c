/* Filters from text to text. Each gets its operand v and the bound arguments a[] in the order of
 * its parameter list in the table below. Most convert v to a string first. A string with VF_MARKUP
 * is HTML already. It is not escaped again, and v_like passes the mark on to results.
 *
 * Features that no chat template uses and that need large tables or a library (links by urlize,
 * wrapping at hyphens) raise NotImplementedError, so that the result never differs from jinja2's.
 */
#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/method_str.h"
#include "worker/text/template/pystr.h"

/* Calls a str method on the value's text. */
static struct value by_method(struct template_run *r, const char *name, struct value v,
                              struct value *a, uint32_t n)
{
    struct argv argv = {.pos = a, .n_pos = n};

    v = filter_text(r, v);
    return v.t == V_ERR ? v : method_call(r, method_find(v, str_cstr(name)), v, &argv);
}

static struct value f_upper(struct template_run *r, struct value v, struct value *a)
{
    return by_method(r, "upper", v, a, 0);
}

static struct value f_lower(struct template_run *r, struct value v, struct value *a)
{
    return by_method(r, "lower", v, a, 0);
}

static struct value f_capitalize(struct template_run *r, struct value v, struct value *a)
{
    return by_method(r, "capitalize", v, a, 0);
}

static struct value f_trim(struct template_run *r, struct value v, struct value *a)
{
    if (v.t == V_STR && a[0].t == V_MISSING) {
        struct str left = pystr_strip(v_bytes(v), 3);

        return run_spend(r, v.n - left.len + 1) ? v_like(v_str(left), v) : v_err();
    }
    return by_method(r, "strip", v, a, a[0].t == V_MISSING ? 0 : 1);
}

static struct value f_center(struct template_run *r, struct value v, struct value *a)
{
    if (a[0].t == V_MISSING)
        a[0] = v_int(80);
    return by_method(r, "center", v, a, 1);
}

/* Reports whether a word begins after this character. */
static bool begins_word(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' ||
           (pystr_flags(cp) & PYSTR_SPACE);
}

/* Makes the first character of each word upper case and the rest lower case. A word begins after
 * white space, an opening bracket or a hyphen. */
static struct value f_title(struct template_run *r, struct value v, struct value *a)
{
    struct buf out = {0};
    struct str s;

    (void)a;
    v = filter_text(r, v);
    if (v.t == V_ERR || !run_spend_chars(r, v_bytes(v)) || !run_room(r, (uint64_t)v.n * 3))
        return v_err();
    s = v_bytes(v);
    for (size_t at = 0; at < s.len;) {
        size_t first = at, second, end;
        bool separator = begins_word(pystr_next(s, &at));

        second = end = at;
        while (end < s.len && begins_word(pystr_next(s, &at)) == separator)
            end = at;
        at = end;
        if (!run_spend(r, 4)) {
            buf_done(&out);
            return v_err();
        }
        buf_add_str(&out, pystr_case(r->a, str_sub(s, first, second - first), PYSTR_TO_UPPER));
        buf_add_str(&out, pystr_case(r->a, str_sub(s, second, end - second), PYSTR_TO_LOWER));
    }
    return run_take_text(r, &out);
}

/* Replaces within autoescape. If HTML is put into plain text, the text becomes HTML; HTML stays
 * HTML. */
static struct value replace_html(struct template_run *r, struct value v, struct value old,
                                 struct value new, int64_t count)
{
    struct str was, is;

    if ((old.flags & VF_MARKUP) || (new.flags &VF_MARKUP))
        v = text_to_html(r, v);
    if (v.t == V_ERR || !arg_like(r, old, v, &was) || !arg_like(r, new, v, &is))
        return v_err();
    return method_replace(r, v, was, is, count);
}

/* Without autoescape the result is plain text: a mark of HTML is dropped. */
static struct value f_replace(struct template_run *r, struct value v, struct value *a)
{
    struct value old = filter_text(r, a[0]), new = filter_text(r, a[1]);
    int64_t count;

    v = filter_text(r, v);
    if (v.t == V_ERR || old.t == V_ERR || new.t == V_ERR || !arg_int(r, a[2], -1, &count))
        return v_err();
    if (r->autoescape)
        return replace_html(r, v, old, new, count);
    v.flags = 0;
    return method_replace(r, v, v_bytes(old), v_bytes(new), count);
}

/* Cuts text to `length` characters, including the end mark, but only if it is longer by more than
 * `leeway`. Cuts at the last space unless killwords is true. */
static struct value f_truncate(struct template_run *r, struct value v, struct value *a)
{
    struct str end = STR("..."), s, cut;
    int64_t length, leeway, end_len, n;
    size_t space;

    if (!arg_int(r, a[0], 255, &length) || !arg_int(r, a[3], 5, &leeway) ||
        (a[2].t != V_MISSING && !arg_str(r, a[2], &end)))
        return v_err();
    end_len = (int64_t)pystr_len(end);
    if (length < end_len || leeway < 0)
        return run_fail(r, "AssertionError", "expected length >= %lld, got %lld",
                        (long long)end_len, (long long)length);
    n = value_len(r, v);
    if (n < 0 || n <= length + leeway)
        return n < 0 ? v_err() : v;
    if (v.t != V_STR)
        return run_fail(r, "TypeError", "'%s' cannot be truncated", v_type_name(v));
    s = v_bytes(v);
    if (!run_spend(r, s.len / 8))
        return v_err();
    cut = str_sub(s, 0, pystr_offset(s, 0, (size_t)(length - end_len)));
    if (!value_truth(r, a[1])) {
        for (space = cut.len; space > 0 && cut.p[space - 1] != ' '; space--)
            ;
        if (space > 0)
            cut.len = space - 1;
    }
    return run_concat(r, v_str(cut), v_str(end));
}

static bool is_word_character(uint32_t cp)
{
    return cp == '_' ||
           (pystr_flags(cp) & (PYSTR_ALPHA | PYSTR_DECIMAL | PYSTR_DIGIT | PYSTR_NUMERIC));
}

/* Counts runs of word characters. */
static struct value f_wordcount(struct template_run *r, struct value v, struct value *a)
{
    bool inside = false;
    int64_t n = 0;

    (void)a;
    v = filter_text(r, v);
    if (v.t == V_ERR || !run_spend_chars(r, v_bytes(v)))
        return v_err();
    for (size_t at = 0; at < v.n;) {
        bool word = is_word_character(pystr_next(v_bytes(v), &at));

        n += word && !inside;
        inside = word;
    }
    return v_int(n);
}

static bool is_html_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The arguments of wordwrap. */
struct wrapping {
    size_t width;
    bool break_long;
    struct str newline;
};

/* Returns the end of the run of blanks, or of other characters, that begins at `at`. */
static size_t chunk_end(struct str line, size_t at)
{
    bool blank = is_html_blank(line.p[at]);

    while (at < line.len && is_html_blank(line.p[at]) == blank)
        at++;
    return at;
}

/* A run of blanks or of other characters, of which wrap_line may have used a beginning. */
struct chunk {
    size_t end; /* position in bytes */
    size_t n;   /* remaining characters */
};

/* Reads the chunk at `at`, unless the present one is not used up: a word that fills many lines is
 * measured only once. */
static void chunk_read(struct chunk *c, struct str line, size_t at)
{
    if (at < c->end)
        return;
    c->end = chunk_end(line, at);
    c->n = pystr_len(str_sub(line, at, c->end - at));
}

/* Returns the end of a line of at most `width` characters that begins at `at`. *full: a long word
 * follows that had no room, so that Python keeps the blanks before it. */
static size_t find_line_end(struct chunk *c, struct str line, size_t at, const struct wrapping *w,
                            bool *full)
{
    size_t used = 0;

    for (; at < line.len; at = c->end) {
        chunk_read(c, line, at);
        if (used + c->n > w->width)
            break;
        used += c->n;
    }
    if (at == line.len || c->n <= w->width)
        return at;
    if (w->break_long) {
        *full = used == w->width;
        at = pystr_offset(line, at, w->width - used);
        c->n -= w->width - used;
        return at;
    }
    return used == 0 ? c->end : at;
}

/* Cuts one paragraph into lines of at most `width` characters, like Python's textwrap. Blanks at
 * the ends of lines are dropped. Long words fill the rest of a line. Returns false if the budget is
 * spent. */
static bool wrap_line(struct template_run *r, struct buf *out, struct str line,
                      const struct wrapping *w)
{
    struct chunk c = {0};
    bool any = false, full;

    for (size_t at = 0; at < line.len;) {
        size_t from, to;

        if (!run_spend_text(r, MIN_OF(w->width, line.len - at), out->len))
            return false;
        if (any && is_html_blank(line.p[at])) {
            chunk_read(&c, line, at);
            at = c.end;
        }
        from = at;
        full = false;
        at = find_line_end(&c, line, at, w, &full);
        for (to = at; !full && to > from && is_html_blank(line.p[to - 1]); to--)
            ;
        if (to == from)
            continue;
        if (any)
            buf_add_str(out, w->newline);
        buf_add_str(out, str_sub(line, from, to - from));
        any = true;
    }
    return true;
}

/* Wraps every line of the text by itself. Python also breaks long lines at hyphens. If that would
 * change the result, the filter fails. */
static struct value f_wordwrap(struct template_run *r, struct value v, struct value *a)
{
    struct wrapping w = {.newline = STR("\n"),
                         .break_long = a[1].t == V_MISSING || value_truth(r, a[1])};
    struct str line;
    bool hyphens = a[3].t == V_MISSING || value_truth(r, a[3]);
    struct buf out = {0};
    size_t at = 0, end;
    int64_t width;

    if (v.t != V_STR)
        return run_fail(r, "AttributeError", "'%s' object has no attribute 'splitlines'",
                        v_type_name(v));
    if (!arg_int(r, a[0], 79, &width) ||
        (a[2].t != V_MISSING && a[2].t != V_NONE && !arg_str(r, a[2], &w.newline)))
        return v_err();
    if (width <= 0)
        return run_fail(r, "ValueError", "invalid width %lld (must be > 0)", (long long)width);
    if (!run_spend_text(r, v.n, v.n))
        return v_err();
    w.width = (size_t)width;
    for (bool first = true; pystr_line(v_bytes(v), &at, &line, &end); first = false) {
        if (hyphens && pystr_len(line) > (size_t)width && memchr(line.p, '-', line.len)) {
            buf_done(&out);
            return run_fail(r, "NotImplementedError", "wordwrap at hyphens is not supported");
        }
        if (!first)
            buf_add_str(&out, w.newline);
        if (!wrap_line(r, &out, line, &w) || !run_spend_text(r, w.newline.len, out.len)) {
            buf_done(&out);
            return v_err();
        }
    }
    return run_take_text(r, &out);
}

/* Pads every line except the first (`first` includes it) and empty ones (`blank` includes them). */
static struct value f_indent(struct template_run *r, struct value v, struct value *a)
{
    struct buf out = {0}, pad = {0};
    struct value whole;
    struct str line, s;
    size_t at = 0, end, lines = 0;
    int64_t width;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (v.t != V_STR)
        return run_fail(r, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'",
                        v_type_name(v));
    if (a[0].t == V_STR) {
        buf_add_str(&pad, v_bytes(a[0]));
    } else {
        if (!arg_int(r, a[0], 4, &width))
            return v_err();
        if (width > 10000)
            return run_fail(r, "OverflowError", "the indentation is too wide");
        for (int64_t i = 0; i < width; i++)
            buf_add_c(&pad, ' ');
    }
    whole = run_concat(r, v, v_text("\n"));
    s = whole.t == V_ERR ? STR("") : v_bytes(whole);
    while (pystr_line(s, &at, &line, &end) &&
           run_spend_text(r, line.len + pad.len, out.len + pad.len + line.len)) {
        if (lines)
            buf_add_c(&out, '\n');
        if (lines == 0 ? value_truth(r, a[1]) : line.len > 0 || value_truth(r, a[2]))
            buf_add_str(&out, buf_str(&pad));
        buf_add_str(&out, line);
        lines++;
    }
    buf_done(&pad);
    return v_like(run_take_text(r, &out), v);
}

/* --- HTML --- */

/* Text that is already HTML is not changed. The result is marked as HTML. */
static struct value f_escape(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return text_to_html(r, filter_text(r, v));
}

static struct value f_forceescape(struct template_run *r, struct value v, struct value *a)
{
    v = filter_text(r, v);
    v.flags = 0;
    return v.t == V_ERR ? v : f_escape(r, v, a);
}

/* Marks the text as HTML without changing it. */
static struct value f_safe(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return v_markup(filter_text(r, v));
}

static struct value f_string(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return filter_text(r, v);
}

/* Finds the end of a comment or tag that begins at `at`, or returns SIZE_MAX. A failed search is
 * not repeated: `none` has a bit for each kind. */
static size_t find_tag_end(struct str s, size_t at, unsigned *none)
{
    bool comment = str_starts(str_sub(s, at, s.len), STR("<!--"));
    size_t end = *none >> comment & 1 ? SIZE_MAX : str_find(s, comment ? STR("-->") : STR(">"), at);

    if (end == SIZE_MAX)
        *none |= 1U << comment;
    return end;
}

/* If s begins with a known entity, writes its character and returns its length; otherwise returns
 * 0. */
static size_t write_entity(struct str s, struct buf *out)
{
    static const struct {
        const char *text;
        char c;
    } known[] = {{"&amp;", '&'},  {"&lt;", '<'},   {"&gt;", '>'},
                 {"&quot;", '"'}, {"&#39;", '\''}, {"&#34;", '"'}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (str_starts(s, str_cstr(known[i].text))) {
            buf_add_c(out, known[i].c);
            return strlen(known[i].text);
        }
    }
    return 0;
}

/* Removes comments and tags, strips and joins white space, then decodes entities. */
static struct value f_striptags(struct template_run *r, struct value v, struct value *a)
{
    struct buf plain = {0}, out = {0};
    unsigned none = 0;
    struct str s;

    (void)a;
    v = filter_text(r, v);
    if (v.t == V_ERR || !run_spend(r, v.n) || !run_room(r, (uint64_t)v.n * 2))
        return v_err();
    s = v_bytes(v);
    for (size_t at = 0; at < s.len; at++) {
        size_t end = s.p[at] == '<' ? find_tag_end(s, at, &none) : SIZE_MAX;

        if (end == SIZE_MAX)
            buf_add_c(&plain, s.p[at]);
        else
            at = s.p[end] == '-' ? end + 2 : end;
    }
    s = pystr_strip(buf_str(&plain), 3);
    for (size_t at = 0; at < s.len;) {
        size_t next = at, n = s.p[at] == '&' ? write_entity(str_sub(s, at, s.len), &out) : 0;

        if (n) {
            at += n;
            continue;
        }
        if (pystr_flags(pystr_next(s, &next)) & PYSTR_SPACE) {
            buf_add_c(&out, ' ');
            next = s.len - pystr_strip(str_sub(s, at, s.len), 1).len;
        } else {
            buf_add_str(&out, str_sub(s, at, next - at));
        }
        at = next;
    }
    buf_done(&plain);
    return run_take_text(r, &out);
}

/* Percent-encodes all but unreserved characters. In a query "/" is encoded too and a space becomes
 * "+". */
static void url_quote(struct buf *out, struct str s, bool query)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
            (c && strchr("_.-~", c)) || (c == '/' && !query))
            buf_add_c(out, (char)c);
        else if (c == ' ' && query)
            buf_add_c(out, '+');
        else
            buf_printf(out, "%%%02X", c);
    }
}

/* Writes one pair of a query; pairs after the first begin with "&". */
static bool quote_pair(struct template_run *r, struct buf *out, struct value pair)
{
    struct value kv = iter_collect(r, pair);

    if (kv.t != V_ERR && kv.list->n != 2)
        kv = run_fail(r, "ValueError", "urlencode needs pairs");
    for (uint32_t i = 0; i < 2 && kv.t != V_ERR; i++) {
        struct value text = filter_text(r, kv.list->at[i]);

        if (text.t == V_ERR || !run_spend(r, (uint64_t)text.n * 4 + 1) ||
            !run_room(r, out->len + (uint64_t)text.n * 3))
            return false;
        if (i || out->len)
            buf_add_c(out, i ? '=' : '&');
        url_quote(out, v_bytes(text), true);
    }
    return kv.t != V_ERR;
}

/* Quotes a string as a path. A mapping or a list of pairs becomes "key=value&...". */
static struct value f_urlencode(struct template_run *r, struct value v, struct value *a)
{
    struct buf out = {0};
    struct iter it;
    struct value pair, text;
    int more;

    (void)a;
    if (v.t != V_DICT && v.t != V_VIEW && v.t != V_GEN && v.t != V_RANGE && !v_is_seq(v)) {
        text = filter_text(r, v);
        if (text.t == V_ERR || !run_spend(r, (uint64_t)text.n * 4) ||
            !run_room(r, (uint64_t)text.n * 3))
            return v_err();
        url_quote(&out, v_bytes(text), false);
        return run_take_text(r, &out);
    }
    if (v.t == V_DICT)
        v = (struct value){.t = V_VIEW, .sub = VIEW_ITEMS, .dict = v.dict};
    if (!iter_init(r, &it, v))
        return v_err();
    while ((more = iter_next(r, &it, &pair)) > 0) {
        if (!quote_pair(r, &out, pair)) {
            buf_done(&out);
            return v_err();
        }
    }
    text = run_take_text(r, &out);
    return more < 0 || r->error.kind ? v_err() : text;
}

/* Writes ` key="value"` for each entry. Entries that are None or undefined are left out. Keys that
 * could end the attribute's name are refused. */
static struct value f_xmlattr(struct template_run *r, struct value v, struct value *a)
{
    struct buf out = {0};

    if (v.t != V_DICT)
        return run_fail(r, "AttributeError", "'%s' object has no attribute 'items'",
                        v_type_name(v));
    dict_need(r->a, v.dict);
    for (uint32_t i = 0; i < v.dict->n && !r->error.kind; i++) {
        struct value item = v.dict->at[i].value;
        struct value key = f_escape(r, v.dict->at[i].key, NULL);
        struct value text;

        if (item.t == V_NONE || item.t == V_UNDEF || key.t == V_ERR || !run_spend(r, 1))
            continue;
        text = f_escape(r, item, NULL);
        if (pystr_strip(v_bytes(key), 3).len != key.n ||
            strcspn(arena_cstr(r->a, v_bytes(key)), " \t\n/>=") != key.n)
            (void)run_fail(r, "ValueError", "Invalid character in attribute name");
        if (out.len || a[0].t == V_MISSING || value_truth(r, a[0]))
            buf_add_c(&out, ' ');
        buf_add_str(&out, v_bytes(key));
        buf_puts(&out, "=\"");
        if (text.t != V_ERR)
            buf_add_str(&out, v_bytes(text));
        buf_add_c(&out, '"');
        (void)run_spend_text(r, key.n + text.n, out.len);
    }
    v = run_take_text(r, &out);
    return r->error.kind ? v_err() : r->autoescape ? v_markup(v) : v;
}

/* Returns text unchanged if nothing in it looks like a link. Otherwise fails, because no chat
 * template makes links. */
static struct value f_urlize(struct template_run *r, struct value v, struct value *a)
{
    struct value text = f_escape(r, filter_text(r, v), a);
    struct str s = text.t == V_ERR ? STR("") : v_bytes(text);

    if (text.t == V_ERR || !run_spend(r, s.len / 16))
        return v_err();
    if (str_find(s, STR("www."), 0) != SIZE_MAX || str_find(s, STR("@"), 0) != SIZE_MAX ||
        str_find(s, STR("mailto:"), 0) != SIZE_MAX)
        return run_fail(r, "NotImplementedError", "urlize is not supported");
    for (size_t dot = 0; (dot = str_find(s, STR("."), dot)) != SIZE_MAX; dot++) {
        size_t end = dot + 1;

        while (end < s.len && (s.p[end] | 32) >= 'a' && (s.p[end] | 32) <= 'z')
            end++;
        if (end - dot > 2)
            return run_fail(r, "NotImplementedError", "urlize is not supported");
    }
    text.flags = 0;
    return text;
}

const struct filter text_filters[] = {
    {"trim", "chars", f_trim},
    {"string", "", f_string},
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"safe", "", f_safe},
    {"replace", "old! new! count", f_replace},
    {"title", "", f_title},
    {"capitalize", "", f_capitalize},
    {"indent", "width first blank", f_indent},
    {"center", "width", f_center},
    {"truncate", "length killwords end leeway", f_truncate},
    {"wordcount", "", f_wordcount},
    {"wordwrap", "width break_long_words wrapstring break_on_hyphens", f_wordwrap},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"forceescape", "", f_forceescape},
    {"striptags", "", f_striptags},
    {"urlencode", "", f_urlencode},
    {"urlize", "trim_url_limit nofollow target rel extra_schemes", f_urlize},
    {"xmlattr", "autospace", f_xmlattr},
    {NULL, NULL, NULL},
};
