/*
 * Writes options under the names that export_option reads. If a session is owed to sinks, its
 * record has this text (sinks_promise), and the later export must be the same. So options that were
 * not set are left out: the session's own rule of merging then applies as it does now.
 */
#include "worker/export/build/options_text.h"
#include "common/codec/json.h"
#include "worker/text/request/purpose.h"

const char *const export_select_names[SELECT_COUNT] = {
    [SELECT_LEAVES] = "leaves",
    [SELECT_ALL_CHECKPOINTS] = "all_checkpoints",
    [SELECT_LAST] = "last",
    [SELECT_LONGEST] = "longest",
};

const char *const export_merge_names[MERGE_COUNT] = {
    [MERGE_NONE] = "none",
    [MERGE_TEXT] = "text",
    [MERGE_TOKEN] = "token",
};

const char *const export_media_names[MEDIA_COUNT] = {
    [MEDIA_REFS] = "refs",
    [MEDIA_INLINE] = "inline",
    [MEDIA_NONE] = "none",
};

static void put_purposes(struct json_out *o, const char *key, unsigned bits)
{
    struct buf list = {0};

    for (unsigned i = 0; i < PURPOSE_COUNT; i++) {
        if (bits & 1u << i)
            buf_printf(&list, "%s%s", list.len ? "," : "", purpose_name((enum purpose)i));
    }
    if (list.len > 0)
        json_out_member_str(o, key, buf_str(&list));
    buf_done(&list);
}

static void put_text(struct json_out *o, const char *key, struct str text)
{
    if (!text.p)
        return;
    json_out_member_str(o, key, text);
}

void export_options_text(const struct export_options *x, struct buf *ret)
{
    struct json_out o = json_out_to(ret);

    json_out_obj(&o);
    json_out_member_cstr(&o, "select", export_select_names[x->select]);
    json_out_member_cstr(&o, "pick", x->drop_retries ? "drop_retries" : "all");
    json_out_member_bool(&o, "train_once", x->train_once);
    put_purposes(&o, "purposes", x->purposes);
    put_purposes(&o, "train_purposes", x->train_purposes);
    put_text(&o, "roles", x->roles);
    put_text(&o, "train_roles", x->train_roles);
    if (x->merge_set)
        json_out_member_cstr(&o, "merge", export_merge_names[x->merge]);
    if (x->ignore_tools_set)
        json_out_member_bool(&o, "ignore_tools", x->ignore_tools);
    if (x->max_tokens > 0)
        json_out_member_i64(&o, "max_tokens", (int64_t)x->max_tokens);
    json_out_member_bool(&o, "drift", !x->no_drift);
    if (x->collapsed_ids)
        json_out_member_cstr(&o, "ids", "collapsed");
    if (x->media != MEDIA_REFS)
        json_out_member_cstr(&o, "media", export_media_names[x->media]);
    json_out_member_bool(&o, "mask_unfinished", x->mask_unfinished);
    put_text(&o, "uid", x->uid);
    if (x->has_session_index)
        json_out_member_i64(&o, "session_index", x->session_index);
    if (x->global_steps >= 0)
        json_out_member_i64(&o, "global_steps", x->global_steps);
    json_out_end_obj(&o);
}
