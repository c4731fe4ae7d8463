/* Keeps rewards of a session and of its responses: an object that is merged member by member,
 * each kept as JSON text. The number that exports use is `reward`, else `score`, else the only
 * number. */

#include "worker/session/store/reward.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/codec/json.h"

enum { NAME_MAX_BYTES = 80 };

/* Checks the range, because exports have float32. */
static int check_range(const struct json *v, const char *name, struct err *e)
{
    double d;

    if (json_to_double(v, &d) != 0 || !isfinite(d) || fabs(d) > (double)FLT_MAX)
        return err_field(e, name, "%s must be a number from %g to %g, not %.*s", name,
                         -(double)FLT_MAX, (double)FLT_MAX, (int)MIN_OF(v->n, 40u), v->text);
    return 0;
}

/* null is allowed: not known yet. */
int reward_check_value(const struct json *v, const char *name, struct err *e)
{
    if (json_is_null(v))
        return 0;
    if (v->kind != JSON_NUMBER)
        return err_field(e, name, "%s must be a number (or null, while it is unknown), not %s",
                         name,
                         v->kind == JSON_STRING  ? "a string"
                         : v->kind == JSON_BOOL  ? "a boolean"
                         : v->kind == JSON_ARRAY ? "an array"
                                                 : "an object");
    return check_range(v, name, e);
}

/* Checks all numbers in reward_info; other members may be anything. */
int reward_check(const struct json *info, struct err *e)
{
    if (!json_is(info, JSON_OBJECT))
        return err_field(e, "reward_info", "reward_info must be an object");
    if (reward_check_value(json_get(info, "reward"), "reward_info.reward", e) != 0 ||
        reward_check_value(json_get(info, "score"), "reward_info.score", e) != 0)
        return -1;
    for (uint32_t i = 0; i < info->n; i++) {
        struct str key = json_string(&info->members[i].key);
        char name[NAME_MAX_BYTES + sizeof("reward_info.")];

        if (info->members[i].value.kind != JSON_NUMBER)
            continue;
        (void)snprintf(name, sizeof(name), "reward_info.%.*s",
                       (int)MIN_OF(key.len, (size_t)NAME_MAX_BYTES), key.p);
        if (check_range(&info->members[i].value, name, e) != 0)
            return -1;
    }
    return 0;
}

/* Members are kept as JSON text. A text that is no number (or, in an old journal, one that exceeds
 * a float32) counts as unknown. */
static bool number_of(struct str text, double *ret)
{
    struct arena tmp = {0};
    const struct json *v;
    struct err e;

    if (text.len == 0 || !strchr("-0123456789", text.p[0]))
        return false; /* too long for a number */
    bool ok = json_parse(&tmp, text, &v, &e) == 0 && v->kind == JSON_NUMBER &&
              json_to_double(v, ret) == 0 && fabs(*ret) <= (double)FLT_MAX;

    arena_done(&tmp);
    return ok;
}

/* Reports whether a member is a number. *ret_there: the member exists and is not null. */
static bool read_member_number(const struct reward *r, const char *key, double *ret,
                               bool *ret_there)
{
    *ret_there = false;
    for (size_t i = 0; i < r->members.n; i++)
        if (str_eq_c(r->members.at[i].key, key)) {
            *ret_there = !str_eq_c(r->members.at[i].json, "null");
            return number_of(r->members.at[i].json, ret);
        }
    return false;
}

bool reward_number(const struct reward *r, double *ret)
{
    static const char *const keys[] = {"reward", "score"};
    size_t numbers = 0;
    double only = 0, d;
    bool there;

    *ret = 0;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (read_member_number(r, keys[i], &d, &there)) {
            *ret = d;
            return true;
        }
        if (there)
            return false;
    }
    for (size_t i = 0; i < r->members.n; i++)
        if (number_of(r->members.at[i].json, &d)) {
            only = d;
            numbers++;
        }
    if (numbers == 1)
        *ret = only;
    return numbers == 1;
}

void reward_put(const struct reward *r, struct json_out *o)
{
    double d;

    if (reward_number(r, &d))
        json_out_double(o, d);
    else
        json_out_null(o);
}

void reward_put_members(const struct reward *r, struct json_out *o)
{
    json_out_obj(o);
    for (size_t i = 0; r && i < r->members.n; i++) {
        json_out_key_str(o, r->members.at[i].key);
        json_out_raw(o, r->members.at[i].json);
    }
    json_out_end_obj(o);
}
