/* The keys that a request shows (presented.h): headers of several kinds, the same key often
 * twice. Texts that are no keys of ours are passed over, since a client library sends what it
 * was given; two different keys are an error, not a choice. */

#include "common/proc/presented.h"

#include "common/proc/keys.h"

/* The text behind "Bearer", or absent. */
static struct str bearer_of(struct str value)
{
    static const struct str scheme = STR_LIT("Bearer");
    struct str rest = str_sub(value, scheme.len, value.len);

    if (!str_eq_nocase(str_sub(value, 0, scheme.len), scheme) || rest.len == 0 ||
        (rest.p[0] != ' ' && rest.p[0] != '\t'))
        return (struct str){0};
    return str_trim(rest);
}

/* Adds a value unless it is there. */
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

/* Whether the text is meant for us, and then what it proves or, unverified, says. */
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

/* No key at all is no error: ret->scope is KEY_NONE. Returns -1 and e if several are meant. */
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
