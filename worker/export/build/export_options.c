/* The options of an export: each by its name, and the combinations that contradict each other. */
#include "common/codec/format_list.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/options_text.h"
#include "worker/session/store/group.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session_view.h"
#include "worker/text/request/purpose.h"

void export_options_init(struct export_options *o)
{
    *o = (struct export_options){.ignore_tools = true, .global_steps = -1};
}

static int bad(struct err *e, const char *name, const char *values)
{
    return err_field(e, name, "%s must be one of %s", name, values);
}

static int read_switch(struct str v, const char *name, bool *ret, struct err *e)
{
    if (str_eq_c(v, "on") || str_eq_c(v, "true") || str_eq_c(v, "1"))
        *ret = true;
    else if (str_eq_c(v, "off") || str_eq_c(v, "false") || str_eq_c(v, "0"))
        *ret = false;
    else
        return bad(e, name, "on, off");
    return 0;
}

static int read_count(struct str v, const char *name, uint64_t max, uint64_t *ret, struct err *e)
{
    if (str_to_u64(v, max, ret) != 0)
        return err_field(e, name, "%s must be an integer from 0 to %llu", name,
                         (unsigned long long)max);
    return 0;
}

/* Reads a limit. 0 is an error, because nothing fits into no tokens. */
static int read_limit(struct export_options *o, struct str v, const char *name, struct err *e)
{
    if (str_to_u64(v, UINT32_MAX, &o->max_tokens) != 0 || o->max_tokens == 0)
        return err_field(e, name, "%s must be an integer from 1 to %u", name, UINT32_MAX);
    o->has_max_tokens = true;
    return 0;
}

static int read_select(struct export_options *o, struct str v, struct err *e)
{
    o->select = (enum export_select)str_index(v, export_select_names, SELECT_COUNT);
    return o->select < SELECT_COUNT ? 0
                                    : bad(e, "select", "leaves, all_checkpoints, last, longest");
}

static int read_pick(struct export_options *o, struct str v, struct err *e)
{
    if (!str_eq_c(v, "all") && !str_eq_c(v, "drop_retries"))
        return bad(e, "pick", "all, drop_retries");
    o->drop_retries = str_eq_c(v, "drop_retries");
    return 0;
}

static int read_merge(struct export_options *o, struct str v, struct err *e)
{
    o->merge = (enum export_merge)str_index(v, export_merge_names, MERGE_COUNT);
    o->merge_set = true;
    return o->merge < MERGE_COUNT ? 0 : bad(e, "merge", "none, text, token");
}

static int read_format(struct export_options *o, struct str v, struct err *e)
{
    for (int i = 0; i < EXPORT_FORMAT_COUNT; i++)
        if (!export_formats[i].hidden && str_eq_c(v, export_formats[i].name)) {
            o->format = (enum export_format)i;
            return 0;
        }
    return bad(e, "format", FORMAT_LIST);
}

static int read_drift(struct export_options *o, struct str v, struct err *e)
{
    bool on = true;

    if (read_switch(v, "drift", &on, e) != 0)
        return -1;
    o->no_drift = !on;
    return 0;
}

static int read_ids(struct export_options *o, struct str v, struct err *e)
{
    if (!str_eq_c(v, "expanded") && !str_eq_c(v, "collapsed"))
        return bad(e, "ids", "expanded, collapsed");
    o->collapsed_ids = str_eq_c(v, "collapsed");
    return 0;
}

static int read_media(struct export_options *o, struct str v, struct err *e)
{
    o->media = (enum export_media)str_index(v, export_media_names, MEDIA_COUNT);
    return o->media < MEDIA_COUNT ? 0 : bad(e, "media", "refs, inline, none");
}

static int read_numbers(struct export_options *o, struct str name, struct str value, struct err *e)
{
    uint64_t n = 0;

    if (str_eq_c(name, "max_tokens"))
        return read_limit(o, value, "max_tokens", e);
    if (str_eq_c(name, "max_seq_len"))
        return read_limit(o, value, "max_seq_len", e);
    if (str_eq_c(name, "session_index")) {
        if (read_count(value, "session_index", UINT32_MAX, &n, e) != 0)
            return -1;
        o->session_index = (uint32_t)n;
        o->has_session_index = true;
    } else if (str_eq_c(name, "global_steps")) {
        if (read_count(value, "global_steps", INT64_MAX, &n, e) != 0)
            return -1;
        o->global_steps = (int64_t)n;
    }
    return 0;
}

static int read_roles(struct str value, const char *name, struct str *ret, struct err *e)
{
    *ret = value;
    return roles_check(value, name, e);
}

int export_option(struct export_options *o, struct str name, struct str value, struct err *e)
{
    if (str_eq_c(name, "select"))
        return read_select(o, value, e);
    if (str_eq_c(name, "pick"))
        return read_pick(o, value, e);
    if (str_eq_c(name, "merge"))
        return read_merge(o, value, e);
    if (str_eq_c(name, "format"))
        return read_format(o, value, e);
    if (str_eq_c(name, "ids"))
        return read_ids(o, value, e);
    if (str_eq_c(name, "media"))
        return read_media(o, value, e);
    if (str_eq_c(name, "drift"))
        return read_drift(o, value, e);
    if (str_eq_c(name, "train_once"))
        return read_switch(value, "train_once", &o->train_once, e);
    if (str_eq_c(name, "purposes"))
        return purposes_read(value, "purposes", &o->purposes, e);
    if (str_eq_c(name, "train_purposes"))
        return purposes_read(value, "train_purposes", &o->train_purposes, e);
    if (str_eq_c(name, "roles"))
        return read_roles(value, "roles", &o->roles, e);
    if (str_eq_c(name, "train_roles"))
        return read_roles(value, "train_roles", &o->train_roles, e);
    if (str_eq_c(name, "ignore_tools")) {
        o->ignore_tools_set = true;
        return read_switch(value, "ignore_tools", &o->ignore_tools, e);
    }
    if (str_eq_c(name, "mask_unfinished"))
        return read_switch(value, "mask_unfinished", &o->mask_unfinished, e);
    if (str_eq_c(name, "require_trained"))
        return read_switch(value, "require_trained", &o->require_trained, e);
    if (str_eq_c(name, "require_reward"))
        return read_switch(value, "require_reward", &o->require_reward, e);
    if (str_eq_c(name, "uid")) {
        if (value.len == 0)
            return err_field(e, "uid", "uid must be a text that is not empty");
        o->uid = value;
    }
    return read_numbers(o, name, value, e);
}

static int read_member(struct export_options *o, const struct json_member *m, struct err *e)
{
    struct str name = json_string(&m->key), text = json_text(&m->value);

    switch ((enum json_kind)m->value.kind) {
    case JSON_NULL:
        return 0;
    case JSON_BOOL:
        text = json_is_true(&m->value) ? STR("true") : STR("false");
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        text = STR(""); /* no option accepts an empty text, so the error names the allowed values */
        break;
    default:
        break;
    }
    if (str_eq_c(name, "score"))
        return 0; /* an option of finalize, which has read it */
    if (str_eq_c(name, "metadata")) {
        if (m->value.kind != JSON_OBJECT)
            return err_field(e, "metadata", "metadata must be an object");
        o->metadata = &m->value;
        return reward_check_value(json_get(o->metadata, "reward"), "metadata.reward", e);
    }
    return export_option(o, name, text, e);
}

int export_options_json(struct export_options *o, const struct json *body, struct err *e)
{
    if (json_is_null(body))
        return 0;
    if (body->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "export options must be an object");
    for (uint32_t i = 0; i < body->n; i++)
        if (read_member(o, &body->members[i], e) != 0)
            return -1;
    return 0;
}

int export_options_check(const struct export_options *o, struct err *e)
{
    if (o->merge_set && o->merge != MERGE_NONE && o->select == SELECT_ALL_CHECKPOINTS)
        return err_field(e, "select",
                         "select=all_checkpoints keeps every answer apart and merge=%s joins them: "
                         "use one of the two (merge=none, or select=leaves, last, longest)",
                         export_merge_names[o->merge]);
    if (o->media == MEDIA_INLINE && export_formats[o->format].functions->no_media)
        return err_field(e, "media", "media=inline: the %s format holds no images",
                         export_formats[o->format].name);
    return 0;
}

/* --- the object --- */

void export_take_options(struct export *x, const struct export_options *o)
{
    struct session_view v = session_view(x->session);
    struct str uid = o->uid.p ? o->uid : group_uid(x->session);
    const struct json *step = json_get(v.metadata, "global_steps");
    int64_t steps = -1;

    x->options = *o;
    x->odd_uid = !o->uid.p && group_is_uid_odd(x->session);
    x->odd_step = o->global_steps < 0 && !json_is_null(step) && json_to_i64(step, &steps) != 0;
    if (uid.p)
        x->options.uid = arena_str(&x->arena, uid);
    if (x->options.roles.p)
        x->options.roles = arena_str(&x->arena, x->options.roles);
    if (x->options.train_roles.p)
        x->options.train_roles = arena_str(&x->arena, x->options.train_roles);
    if (x->options.reported.p)
        x->options.reported = arena_str(&x->arena, x->options.reported);
    if (!x->options.has_session_index && v.rollout > 0)
        x->options.session_index = (uint32_t)v.rollout;
    if (x->options.global_steps < 0 && steps >= 0)
        x->options.global_steps = steps;
    if (o->metadata)
        x->options.metadata = json_copy(&x->arena, o->metadata);
}
