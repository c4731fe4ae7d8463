/* Reads, checks and writes a session's place in a group of rollouts (options group, rollout,
 * group_size), and its attempt, which is a label, without the other sessions of the group. */

#include "worker/session/store/group.h"

#include "common/base/limits.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "worker/session/store/store.h"

/* *ret is unchanged if the member is absent. */
static int read_number(const struct json *v, const char *name, int64_t min, int64_t max,
                       int64_t *ret, struct err *e)
{
    const struct json *x = json_get(v, name);

    if (json_is_null(x))
        return 0;
    if (json_to_i64(x, ret) != 0 || *ret < min || *ret > max)
        return err_field(e, name, "%s must be an integer from %d to %d", name, (int)min, (int)max);
    return 0;
}

int group_read(const struct json *v, struct session_options *o, struct err *e)
{
    const struct json *id = json_get(v, "group");
    int64_t rollout = -1, size = 0;

    if (!json_is_null(id)) {
        o->group = json_string(id);
        if (!o->group.p || !session_rules_is_group_id(o->group))
            return err_field(e, "group",
                             "group must be 1 to %d of the characters A-Z a-z 0-9 . - (a `_` "
                             "would split the keys of verl)",
                             GROUP_ID_MAX);
    }
    if (read_number(v, "rollout", 0, GROUP_MAX - 1, &rollout, e) != 0 ||
        read_number(v, "group_size", 1, GROUP_MAX, &size, e) != 0)
        return -1;
    if (!o->group.p && (rollout >= 0 || size > 0))
        return err_field(e, rollout >= 0 ? "rollout" : "group_size",
                         "%s needs a group: give `group`, too",
                         rollout >= 0 ? "rollout" : "group_size");
    if (size > 0 && rollout >= size)
        return err_field(e, "rollout", "rollout must be below group_size, which is %d", (int)size);
    o->rollout = (int32_t)rollout;
    o->group_size = (int32_t)size;
    return 0;
}

void group_write(const struct session_options *o, struct json_out *out)
{
    if (!o->group.p)
        return;
    json_out_member_str(out, "group", o->group);
    if (o->rollout >= 0)
        json_out_member_i64(out, "rollout", o->rollout);
    if (o->group_size > 0)
        json_out_member_i64(out, "group_size", o->group_size);
}

/* Returns the label `attempt`. Absent if not set. */
static struct str group_attempt(const struct session *s)
{
    return json_text(json_get(s->options.labels, "attempt"));
}

/* Used in rows and exports. */
void group_put(const struct session *s, struct json_out *out)
{
    group_write(&s->options, out);
    if (group_attempt(s).p)
        json_out_member_value(out, "attempt", json_get(s->options.labels, "attempt"));
}

bool group_is_uid_odd(const struct session *s)
{
    const struct json *uid = json_get(s->options.metadata, "uid");

    return !json_is_null(uid) && json_text(uid).len == 0;
}

struct str group_uid(const struct session *s)
{
    struct str given = json_text(json_get(s->options.metadata, "uid"));

    return given.len > 0 ? given : s->options.group;
}
