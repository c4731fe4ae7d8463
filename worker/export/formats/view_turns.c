#include "worker/export/formats/view_turns.h"

#include <math.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/codec/json.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/logprob_report.h"

enum { TOOLS_MAX = 1 << 20 }; /* largest size in bytes of all lists of tools in a file */

/* A list of tools that turns were offered. */
struct offered_list {
    const struct json *tools; /* or NULL */
    uint32_t first;           /* first turn that was offered the list */
    struct str text;          /* JSON of the list; absent: it was left out */
};

struct offered_lists {
    struct arena arena;
    struct map seen; /* lists by hash or address (list_key), and by their JSON */
    struct buf text; /* JSON of the present list */
    size_t left;     /* remaining bytes */
};

/* Returns the environment of the answered request; NULL: a completion has none. */
static const struct prompt_env *turn_env(const struct trajectory_turn *turn)
{
    const struct message_node *node = turn->checkpoint->node;

    return node ? node->env : NULL;
}

/* Returns an identification of the environment's tools: the hash of long ones, the address of
 * others. It lives as long as the environment. */
static struct str list_key(const struct prompt_env *env)
{
    static const struct json *const no_tools = NULL;

    if (env && (env->tools_hash[0] | env->tools_hash[1]))
        return str_of((const char *)env->tools_hash, sizeof(env->tools_hash));
    return env ? str_of((const char *)&env->tools, sizeof(env->tools))
               : str_of((const char *)&no_tools, sizeof(no_tools));
}

/* Writes the JSON of a list into l->text. Returns false if it is longer than the remaining
 * bytes. */
static bool write_list(struct offered_lists *l, const struct json *tools)
{
    if (l->left == 0 || json_text_bytes(tools, l->left) >= l->left)
        return false;
    buf_clear(&l->text);
    json_write(&l->text, tools);
    return true;
}

/* Keeps the JSON in l->text for the list. The first list that is too long sets the remaining bytes
 * to 0, so that no time is spent on texts that would be dropped. */
static void keep_list(struct offered_lists *l, struct offered_list *list)
{
    if (l->text.len > l->left) {
        l->left = 0;
        return;
    }
    l->left -= l->text.len;
    list->text = arena_str(&l->arena, buf_str(&l->text));
    (void)map_set(&l->seen, list->text, list);
}

/* Returns the list with the same JSON, or adds one. */
static struct offered_list *add_list(struct offered_lists *l, const struct json *tools,
                                     uint32_t turn)
{
    bool written = tools && write_list(l, tools);
    struct offered_list *ret = written ? map_get(&l->seen, buf_str(&l->text)) : NULL;

    if (ret)
        return ret;
    ret = ARENA_NEW(&l->arena, struct offered_list);
    *ret = (struct offered_list){.tools = tools, .first = turn};
    if (!tools)
        ret->text = STR("[]");
    else if (written)
        keep_list(l, ret);
    return ret;
}

static struct offered_list *list_of_turn(struct offered_lists *l, const struct prompt_env *env,
                                         uint32_t turn)
{
    struct str key = list_key(env);
    struct offered_list *ret = map_get(&l->seen, key);

    if (!ret) {
        ret = add_list(l, env ? env->tools : NULL, turn);
        (void)map_set(&l->seen, key, ret);
    }
    return ret;
}

static void put_list(struct json_out *o, const struct offered_list *list, uint32_t turn)
{
    json_out_obj(o);
    json_out_member_i64(o, "turn", turn);
    if (list->first != turn) {
        json_out_member_i64(o, "same", list->first);
    } else if (list->text.p) {
        json_out_member_raw(o, "tools", list->text);
    } else {
        json_out_member_bool(o, "cut", true);
        json_out_member_i64(o, "n", json_is(list->tools, JSON_ARRAY) ? list->tools->n : 1);
    }
    json_out_end_obj(o);
}

void view_write_tools(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, "tools"));
    struct offered_lists l = {.left = TOOLS_MAX};
    const struct offered_list *before = NULL;

    json_out_arr(&o);
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct offered_list *list = list_of_turn(&l, turn_env(&t->turns[i]), i);

        if (list != before)
            put_list(&o, list, i);
        before = list;
    }
    json_out_end_arr(&o);
    map_done(&l.seen);
    buf_done(&l.text);
    arena_done(&l.arena);
}

float *view_collect_logprobs(struct export *x, const struct trajectory *t)
{
    float *ret = NULL;

    for (uint32_t i = 0; i < t->n_turns && !t->text; i++) {
        const struct trajectory_turn *turn = &t->turns[i];
        const struct logprob_report *r = checkpoint_report(turn->checkpoint, x->options.reported);

        if (!r)
            continue;
        if (!ret) {
            ret = arena_alloc(&x->arena, t->n * sizeof(*ret));
            for (uint32_t k = 0; k < t->n; k++)
                ret[k] = NAN;
        }
        memcpy(ret + turn->start, r->logprobs,
               MIN_OF(turn->end - turn->start, turn->checkpoint->n) * sizeof(*ret));
    }
    return ret;
}

static bool lists_version(struct str list, struct str version)
{
    struct buf text = {0};
    bool found;

    json_write_string(&text, version);
    found = str_find(list, buf_str(&text), 0) != SIZE_MAX;
    buf_done(&text);
    return found;
}

void view_write_versions(struct export *x, const struct trajectory *t)
{
    struct buf *list = tensors_meta(x, "reported_versions");

    buf_add_c(list, '[');
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct logprob_report *r = checkpoint_report(t->turns[i].checkpoint, (struct str){0});

        for (; r; r = r->older) {
            if (lists_version(buf_str(list), r->version))
                continue;
            if (list->len > 1)
                buf_add_c(list, ',');
            json_write_string(list, r->version);
        }
    }
    buf_add_c(list, ']');
}
