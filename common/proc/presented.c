/* The keys that a request shows (presented.h): headers of several kinds, often with the same key
 * twice. Texts that are not keys of ours are skipped, because a client library sends whatever it
 * was given. Two different keys are an error. */

#include "common/proc/presented.h"

#include "common/proc/keys.h"

/* Returns the text after "Bearer", or absent. */
static struct str bearer_of(struct str value)
{
    static const struct str scheme = STR_LIT("Bearer");
    struct str rest = str_sub(value, scheme.len, value.len);

    if (!str_eq_nocase(str_sub(value, 0, scheme.len), scheme) || rest.len == 0 ||
        (rest.p[0] != ' ' && rest.p[0] != '\t'))
        return (struct str){0};
    return str_trim(rest);
}

void presented_add(struct presented *p, enum presented_place place, struct str value)
{
    struct str text = str_trim(value);

    if (place == PRESENTED_BEARER)
        text = bearer_of(text);
    if (text.len == 0)
        return;
    for (size_t i = 0; i < p->n; i++) {
        if (str_eq(p->at[i], text))
            return;
    }
    p->more = p->n == PRESENTED_MAX;
    if (!p->more)
        p->at[p->n++] = text;
}

/* Reports whether the text is meant as a key of ours. If so, *ret has what it proves or,
 * unverified, what it claims. */
static bool read_key(const struct keys *k, struct str text, struct proof *ret)
{
    enum key_scope claimed;

    *ret = (struct proof){.meant = keys_is_form(text)};
    ret->claims = keys_parse(text, &claimed, &ret->id, &ret->index) == 0;
    if (k && keys_required(k))
        ret->scope = keys_check(k, text, &ret->id);
    else if (!ret->claims)
        ret->id = (struct str){0};
    return ret->meant || ret->scope != KEY_NONE;
}

int presented_prove(const struct presented *p, const struct keys *k, struct proof *ret,
                    struct err *e)
{
    struct proof found = {0};
    unsigned n = 0;

    for (size_t i = 0; i < p->n; i++) {
        struct proof one;

        if (!read_key(k, p->at[i], &one))
            continue;
        found = one;
        n++;
    }
    *ret = (struct proof){0};
    if (n > 1 || p->more)
        return err_set(e, ERR_INVALID, "the request shows different keys: which is meant?");
    *ret = found;
    return 0;
}
