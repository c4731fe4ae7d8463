/*
 * Looking up walks the double array: from a node, the next byte leads to node ^ byte, which counts
 * only if its label is that byte. The first node with a value ends the walk, because the reference
 * library uses the shortest rule, not the longest.
 *
 * The rest of the file tracks the head: which characters of the output correspond to the first ones
 * of the original. Replacements may be longer or shorter than the replaced text. So each character
 * of the output waits until the number of original characters for which it stands is known
 * (emit_character, finish_waiting).
 */
#include "worker/text/tokens/charsmap.h"

#include <stdlib.h>

#include "common/base/budget.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "worker/text/tokens/grapheme.h"
#include "worker/text/tokens/unicode.h"

enum { WHOLE_MAX = 6, UNIT_BYTES = 4, HAS_VALUE = 1 << 8 };

#define LABEL_BITS 0x800000ffu
#define VALUE_BITS 0x7fffffffu

/* --- parsing --- */

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Cuts the decoded bytes into the trie's units and the replacement texts. */
static int cut_tables(struct charsmap *m, const unsigned char *p, size_t n, struct err *e)
{
    size_t bytes = n < UNIT_BYTES ? 0 : read_u32(p) / UNIT_BYTES * UNIT_BYTES;

    if (n < UNIT_BYTES || bytes > n - UNIT_BYTES || bytes == 0)
        return err_set(e, ERR_CONFIG, "normalizer Precompiled: the trie is cut short");
    p += UNIT_BYTES;
    m->n_units = bytes / UNIT_BYTES;
    m->units = mem_calloc(m->n_units, sizeof(*m->units));
    for (size_t i = 0; i < m->n_units; i++)
        m->units[i] = read_u32(p + i * UNIT_BYTES);
    m->texts_len = n - UNIT_BYTES - bytes;
    m->texts = mem_strndup((const char *)p + bytes, m->texts_len);
    if (!utf8_valid(str_of(m->texts, m->texts_len)))
        return err_set(e, ERR_CONFIG, "normalizer Precompiled: the replacements are not UTF-8");
    return 0;
}

int charsmap_parse(struct charsmap *m, struct str base64, struct err *e)
{
    unsigned char *bytes = mem_calloc(base64_room(base64.len) + 1, 1);
    size_t n = 0;
    int rc;

    *m = (struct charsmap){0};
    if (base64_decode(base64, bytes, &n) != 0)
        rc = err_set(e, ERR_CONFIG, "normalizer Precompiled: precompiled_charsmap is not Base64");
    else
        rc = cut_tables(m, bytes, n, e);
    free(bytes);
    if (rc != 0)
        charsmap_done(m);
    return rc;
}

void charsmap_done(struct charsmap *m)
{
    free(m->units);
    free(m->texts);
    *m = (struct charsmap){0};
}

/* --- looking up --- */

static size_t children_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Finds the value of the shortest key with which text begins. */
static bool find_shortest(const struct charsmap *m, struct str text, size_t *value)
{
    size_t node = children_of(m->units[0]);

    for (size_t i = 0; i < text.len && text.p[i]; i++) {
        unsigned char c = (unsigned char)text.p[i];
        uint32_t unit;

        node ^= c;
        if (node >= m->n_units)
            return false;
        unit = m->units[node];
        if ((unit & LABEL_BITS) != c)
            return false;
        node ^= children_of(unit);
        if (unit & HAS_VALUE) {
            *value = node < m->n_units ? m->units[node] & VALUE_BITS : SIZE_MAX;
            return true;
        }
    }
    return false;
}

/* Finds the replacement of the text; false if there is none. */
static bool find_replacement(const struct charsmap *m, struct str text, struct str *ret)
{
    const char *end;
    size_t at;

    if (!find_shortest(m, text, &at) || at > m->texts_len ||
        (at < m->texts_len && ((unsigned char)m->texts[at] & 0xc0) == 0x80))
        return false;
    end = memchr(m->texts + at, 0, m->texts_len - at);
    *ret = str_of(m->texts + at, end ? (size_t)(end - m->texts) - at : m->texts_len - at);
    return true;
}

/* --- applying --- */

/* Tracks the characters of the output that the library aligns to the start of the original. It
 * advances in the original by one character for each output character, by none for an added one,
 * and by further ones for dropped ones. The last character waits, because a drop after it changes
 * it. */
struct alignment {
    struct str text;
    size_t old_head, at; /* positions in text */
    bool waits, aligned;
    long change; /* change at the waiting character */
    size_t end;  /* end of the waiting character in the output */
    size_t head; /* length of the output's head */
};

static void walk_original(struct alignment *a)
{
    if (a->at < a->text.len)
        a->at += unicode_len(a->text.p[a->at]);
}

/* Finishes the waiting character: decides whether it belongs to the head, and advances in the
 * original by the characters for which it stands. */
static void finish_waiting(struct alignment *a)
{
    if (!a->waits)
        return;
    if (a->change > 0 ? a->at < 1 || a->at - 1 < a->old_head : a->at < a->old_head)
        a->head = a->end;
    if (a->change <= 0)
        walk_original(a);
    for (long i = a->change; i < 0; i++)
        walk_original(a);
    a->waits = false;
}

/* Appends a character to the output, after finishing the one before it. */
static void emit_character(struct alignment *a, struct str bytes, long change, struct buf *out)
{
    finish_waiting(a);
    buf_add_str(out, bytes);
    a->waits = true;
    a->change = change;
    a->end = out->len;
}

/* Counts the characters in s. */
static size_t count_chars(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len; i += unicode_len(s.p[i]))
        n++;
    return n;
}

/* Replaces `old` by `new`, one character for one. Further characters of `new` count as inserted;
 * leftover ones of `old` as deleted at the last character written. */
static void replace_aligned(struct alignment *a, struct str old, struct str new, struct buf *out)
{
    size_t had = count_chars(old), k = 0;

    for (size_t i = 0; i < new.len; k++) {
        size_t n = unicode_len(new.p[i]);

        emit_character(a, str_sub(new, i, n), k >= had ? 1 : 0, out);
        i += n;
    }
    if (k < had && a->waits)
        a->change -= (long)(had - k);
}

/* Appends the replacement of the text. Returns whether a rule matched. A replacement may have any
 * length. */
static bool apply_cluster(const struct charsmap *m, struct alignment *a, struct str text,
                          struct budget *budget, struct buf *out)
{
    struct str new;

    if (!budget_spend(budget, 1) || !find_replacement(m, text, &new) ||
        !budget_spend(budget, new.len / 16) || !budget_fits(budget, out->len + new.len))
        return false;
    replace_aligned(a, text, new, out);
    return true;
}

/* Text that no rule matches is emitted too, because the alignment needs it. */
bool charsmap_apply(const struct charsmap *m, struct str text, struct budget *budget, size_t *head,
                    struct buf *out)
{
    struct alignment a = {.text = text, .old_head = *head};
    bool changed = false;

    for (size_t at = 0; at < text.len && !budget->over;) {
        struct str cluster = str_sub(text, at, grapheme_len(text, at));

        at += cluster.len;
        if (cluster.len < WHOLE_MAX && apply_cluster(m, &a, cluster, budget, out)) {
            changed = true;
            continue;
        }
        for (size_t i = 0; i < cluster.len && !budget->over;) {
            struct str c = str_sub(cluster, i, unicode_len(cluster.p[i]));

            i += c.len;
            if (apply_cluster(m, &a, c, budget, out))
                changed = true;
            else
                emit_character(&a, c, 0, out);
        }
    }
    finish_waiting(&a);
    changed = changed && !budget->over;
    if (changed)
        *head = a.head;
    return changed;
}
