/* Typed members of tokenizer.json (tokenizer_config.h). All functions return 0, or -1 with
 * ERR_CONFIG for a malformed member and ERR_UNSUPPORTED for a feature that exists but is not
 * supported here. */

#include "worker/text/tokens/tokenizer_config.h"

#include "common/codec/json.h"
#include "worker/text/tokens/pattern.h"
#include "worker/text/tokens/unicode.h"

struct str config_type(const struct json *v)
{
    return json_string(json_get(v, "type"));
}

/* The type is unknown or missing. */
int config_refuse(const char *what, const struct json *v, struct err *e)
{
    struct str type = config_type(v);

    if (!type.p)
        return err_set(e, ERR_CONFIG, "%s: not an object with a type", what);
    return err_set(e, ERR_UNSUPPORTED, "%s %.*s is not supported", what,
                   (int)(type.len < 64 ? type.len : 64), type.p);
}

/* absent < 0: the member is required. */
int config_bool(const struct json *v, const char *key, int absent, bool *ret, struct err *e)
{
    const struct json *member = json_get(v, key);

    if (!member && absent >= 0) {
        *ret = absent;
        return 0;
    }
    if (!json_is(member, JSON_BOOL))
        return err_set(e, ERR_CONFIG, "%s: not a boolean", key);
    *ret = json_is_true(member);
    return 0;
}

/* Texts with lone surrogates are refused, because they are not UTF-8. */
int config_string(const struct json *v, const char *key, struct str *ret, struct err *e)
{
    const struct json *member = json_get(v, key);

    if (!json_is(member, JSON_STRING) || (member->flags & JSON_SURROGATE))
        return err_set(e, ERR_CONFIG, "%s: not a string", key);
    *ret = json_string(member);
    return 0;
}

int config_char(const struct json *v, const char *key, struct str *ret, struct err *e)
{
    if (config_string(v, key, ret, e) < 0)
        return -1;
    if (ret->len == 0 || unicode_len(ret->p[0]) != ret->len)
        return err_set(e, ERR_CONFIG, "%s: not one character", key);
    return 0;
}

int config_uint(const struct json *v, const char *key, uint32_t max, uint32_t *ret, struct err *e)
{
    int64_t n;

    if (json_to_i64(json_get(v, key), &n) < 0 || n < 0 || n > (int64_t)max)
        return err_set(e, ERR_CONFIG, "%s: not an integer from 0 to %u", key, max);
    *ret = (uint32_t)n;
    return 0;
}

/* {"String": ...} is a literal, {"Regex": ...} a regular expression. */
int config_pattern(const struct json *v, struct pattern **ret, struct err *e)
{
    const struct json *pattern = json_get(v, "pattern");
    struct str text = {0};

    if (json_get(pattern, "String")) {
        if (config_string(pattern, "String", &text, e) < 0)
            return -1;
        *ret = pattern_literal(text);
        return 0;
    }
    if (config_string(pattern, "Regex", &text, e) < 0)
        return err_set(e, ERR_CONFIG, "pattern: neither a String nor a Regex");
    return pattern_regex(text, ret, e);
}
