#include "worker/export/drift.h"

#include "common/base/vec.h"
#include "worker/tokens/tokenizer.h"

const char *drift_kind_name(enum drift_kind k)
{
    static const char *const names[] = {"special_token_count", "special_token_type",
                                        "non_assistant_text", "assistant_text"};

    return names[k];
}

static bool is_special(const struct model *m, int32_t id)
{
    const struct model_info *info = model_info(m);
    const struct tokenizer *t = model_tokenizer(m);

    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return t && tokenizer_is_special(t, id);
}

/* The next run of plain ids at or after *at: moves *at to its end, the special token or the end. */
static struct token_span next_text(const struct model *m, struct token_span s, size_t *at)
{
    size_t from = *at;

    while (*at < s.n && !is_special(m, s.at[*at]))
        ++*at;
    return (struct token_span){s.at + from, *at - from};
}

static bool same_ids(struct token_span a, struct token_span b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (a.at[i] != b.at[i])
            return false;
    return true;
}

static void found(struct drift *d, enum drift_kind kind, size_t position)
{
    if (d->count++ == 0) {
        d->first = kind;
        d->position = (uint32_t)position;
    }
}

static size_t specials(const struct model *m, struct token_span s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += is_special(m, s.at[i]);
    return n;
}

static bool any_set(const uint8_t *mask, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mask[from + i])
            return true;
    return false;
}

static void compare(const struct model *m, struct token_span got, struct token_span want,
                    const uint8_t *mask, struct drift *d)
{
    size_t i = 0, k = 0;

    if (specials(m, got) != specials(m, want)) {
        size_t at = 0;

        while (at < got.n && at < want.n && got.at[at] == want.at[at])
            at++;
        found(d, DRIFT_SPECIAL_TOKEN_COUNT, at);
        return;
    }
    for (;;) {
        size_t from = i;
        struct token_span a = next_text(m, got, &i), b = next_text(m, want, &k);

        if (!same_ids(a, b))
            found(d, any_set(mask, from, a.n) ? DRIFT_ASSISTANT_TEXT : DRIFT_NON_ASSISTANT_TEXT,
                  from);
        if (i == got.n || k == want.n)
            return;
        if (got.at[i] != want.at[k])
            found(d, DRIFT_SPECIAL_TOKEN_TYPE, i);
        i++;
        k++;
    }
}

void drift_audit(const struct model *m, struct model_scratch *scratch, const struct chat *chat,
                 struct token_span ids, const uint8_t *mask, struct drift *ret)
{
    struct token_vec canonical = {0};
    struct token_span want;
    struct err e;

    *ret = (struct drift){0};
    if (model_canonical(m, scratch, chat, &canonical, &e) == 0) {
        ret->audited = true;
        want = (struct token_span){canonical.at, canonical.n};
        /* The true ids end with the model's last token; what the template adds behind it (its own
         * close, a line feed) is no drift. */
        while (want.n > ids.n && !is_special(m, want.at[want.n - 1]))
            want.n--;
        if (want.n == ids.n + 1 && (ids.n == 0 || !is_special(m, ids.at[ids.n - 1])))
            want.n--;
        if (!same_ids(ids, want))
            compare(m, ids, want, mask, ret);
    }
    vec_done(&canonical);
}
