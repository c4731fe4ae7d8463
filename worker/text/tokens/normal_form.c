/* Unicode's normal forms (normal_form.h). Most text needs no change: find_unsafe searches the first
 * character that may change or join a neighbour, and everything before it is copied. A stretch of
 * unsafe characters, with the character before it, is decomposed. Its marks are sorted by combining
 * class, and for the composing forms it is composed again. */

#include "worker/text/tokens/normal_form.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "worker/text/tokens/unicode.h"

struct mark {
    uint32_t cp;
    uint8_t class;
};

struct marks {
    struct mark *at;
    size_t n, cap;
};

/* Reports whether a character may change or join a neighbour under this form. All others stay
 * unchanged, and nothing moves or joins across them to the right. */
static inline bool is_unsafe(enum normal_form form, uint32_t cp)
{
    static const uint32_t flags[] = {[NORMAL_C] = UC_NFC_UNSAFE,
                                     [NORMAL_D] = UC_NFD | UC_CCC,
                                     [NORMAL_KC] = UC_NFC_UNSAFE | UC_NFKD,
                                     [NORMAL_KD] = UC_NFKD | UC_CCC};
    bool opens = form == NORMAL_D || form == NORMAL_KD;

    return (unicode_flags(cp) & flags[form]) || (opens && cp >= 0xac00 && cp <= 0xd7a3);
}

/* Returns the first unsafe character at or after `at`, and the character before it (at or after
 * `at`); text.len if there is none. */
static size_t find_unsafe(enum normal_form form, struct str text, size_t at, size_t *before)
{
    *before = at;
    while (at < text.len) {
        size_t n = unicode_ascii_run(text.p + at, text.len - at);
        uint32_t cp;

        if (n > 0) {
            at += n;
            *before = at - 1;
            continue;
        }
        n = unicode_read(text.p + at, &cp);
        if (is_unsafe(form, cp))
            return at;
        *before = at;
        at += n;
    }
    return at;
}

/* Returns the end of the stretch of unsafe characters. */
static size_t skip_unsafe(enum normal_form form, struct str text, size_t at)
{
    while (at < text.len) {
        uint32_t cp;
        size_t n = unicode_read(text.p + at, &cp);

        if (cp < 0x80 || !is_unsafe(form, cp))
            break;
        at += n;
    }
    return at;
}

bool normal_form_holds(enum normal_form form, struct str text)
{
    size_t before;

    return find_unsafe(form, text, 0, &before) == text.len;
}

static void add_mark(struct marks *m, uint32_t cp)
{
    *vec_push(m) = (struct mark){cp, unicode_combining_class(cp)};
}

/* Decomposes a syllable into its two or three jamo by arithmetic. */
static void decompose_hangul(struct marks *m, uint32_t cp)
{
    uint32_t s = cp - 0xac00;

    add_mark(m, 0x1100 + s / 588);
    add_mark(m, 0x1161 + s % 588 / 28);
    if (s % 28)
        add_mark(m, 0x11a7 + s % 28);
}

/* Appends the full decomposition of one character, which the tables have in expanded form. */
static void decompose_character(struct marks *m, uint32_t cp, bool compat)
{
    const struct unicode_mapping *map = NULL;
    const uint32_t *pool = compat ? unicode_nfkd_pool : unicode_nfd_pool;
    uint32_t flags = unicode_flags(cp);

    if (cp >= 0xac00 && cp <= 0xd7a3) {
        decompose_hangul(m, cp);
        return;
    }
    if (compat && (flags & UC_NFKD))
        map = unicode_map(unicode_nfkd, unicode_nfkd_count, cp);
    else if (!compat && (flags & UC_NFD))
        map = unicode_map(unicode_nfd, unicode_nfd_count, cp);
    if (!map) {
        add_mark(m, cp);
        return;
    }
    for (size_t i = 0; i < map->n; i++)
        add_mark(m, pool[map->at + i]);
}

/* Sorts stably by class: insertion for the usual two or three marks, counting for hostile runs. */
static void order_run(struct mark *run, size_t n)
{
    struct mark *copy;
    size_t start[257] = {0};

    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            struct mark m = run[i];
            size_t j = i;

            for (; j > 0 && run[j - 1].class > m.class; j--)
                run[j] = run[j - 1];
            run[j] = m;
        }
        return;
    }
    copy = mem_alloc(n * sizeof(*copy));
    memcpy(copy, run, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        start[copy[i].class + 1]++;
    for (size_t c = 1; c < 257; c++)
        start[c] += start[c - 1];
    for (size_t i = 0; i < n; i++)
        run[start[copy[i].class]++] = copy[i];
    free(copy);
}

/* Sorts each run of marks between two starters (class 0). */
static void order_marks(struct marks *m)
{
    size_t from = 0;

    while (from < m->n) {
        size_t to = from;

        if (m->at[from].class == 0) {
            from++;
            continue;
        }
        while (to < m->n && m->at[to].class != 0)
            to++;
        order_run(m->at + from, to - from);
        from = to;
    }
}

/* Composes in place: each character joins the last starter, unless a starter or a mark of the same
 * class is between them. */
static void compose_marks(struct marks *m)
{
    size_t out = 0, starter = SIZE_MAX;

    for (size_t i = 0; i < m->n; i++) {
        struct mark c = m->at[i];
        uint32_t joined = 0;

        if (starter != SIZE_MAX && (starter + 1 == out || m->at[out - 1].class < c.class))
            joined = unicode_compose(m->at[starter].cp, c.cp);
        if (joined) {
            m->at[starter].cp = joined;
            continue;
        }
        if (c.class == 0)
            starter = out;
        m->at[out++] = c;
    }
    m->n = out;
}

/* Appends one stretch of text, normalized. */
static void write_stretch(enum normal_form form, struct str text, struct marks *m, struct buf *out)
{
    vec_clear(m);
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;

        at += unicode_read(text.p + at, &cp);
        decompose_character(m, cp, form == NORMAL_KC || form == NORMAL_KD);
    }
    order_marks(m);
    if (form == NORMAL_C || form == NORMAL_KC)
        compose_marks(m);
    for (size_t i = 0; i < m->n; i++) {
        char bytes[4];
        size_t n = utf8_encode(bytes, m->at[i].cp);

        buf_add(out, bytes, n);
    }
}

/* Alternates between copying text and writing normalized stretches. */
void normal_form_apply(enum normal_form form, struct str text, struct buf *out)
{
    struct marks m = {0};
    size_t at = 0;

    buf_reserve(out, text.len);
    while (at < text.len) {
        size_t before, from = find_unsafe(form, text, at, &before), end;

        end = skip_unsafe(form, text, from);
        if (from == text.len)
            before = from;
        buf_add(out, text.p + at, before - at);
        if (from < text.len)
            write_stretch(form, str_sub(text, before, end - before), &m, out);
        at = end;
    }
    vec_done(&m);
}
