/*
 * Format atif: the Agent Trajectory Interchange Format, version 1.7, one document for each
 * trajectory. A step is a message; the results of tools are the observation of the step that called
 * them. A step that was generated here has the ids of its prompt and the sampled ids.
 */
#include <time.h>

#include "common/base/arena.h"
#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/group.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"
#include "worker/text/request/images.h"

static const char VERSION[] = "ATIF-v1.7";

static bool has_role(const struct json *m, const char *role)
{
    return str_eq_c(json_string(json_get(m, "role")), role);
}

/* --- contents --- */

static void put_image(struct export *x, const struct json *part, struct json_out *o)
{
    struct image_part p;

    image_part_read(part, &p);
    json_out_member_str(o, "type", STR("image"));
    json_out_member_obj(o, "source");
    json_out_member_str(o, "media_type",
                        arena_printf(&x->scratch, "image/%.*s", (int)p.format.len, p.format.p));
    json_out_member_str(o, "path",
                        arena_printf(&x->scratch, "/sessions/%.*s/media/%.*s",
                                     (int)session_view(x->session).id.len,
                                     session_view(x->session).id.p, (int)p.media.len, p.media.p));
    json_out_end_obj(o);
}

/* Writes a text, or a list of parts if there is a picture. */
static void put_content(struct export *x, const struct json *content, struct json_out *o)
{
    if (json_is_null(content) || content->kind != JSON_ARRAY) {
        json_out_str(o, content && content->kind == JSON_STRING ? json_string(content) : STR(""));
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < content->n; i++) {
        const struct json *part = &content->items[i];

        json_out_obj(o);
        if (image_part_is(part)) {
            put_image(x, part, o);
        } else {
            struct str text = json_string(json_get(part, "text"));

            json_out_member_str(o, "type", STR("text"));
            json_out_member_str(o, "text", text.p ? text : STR(""));
        }
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

/* Writes arguments. The format accepts only objects, so other text is written whole under its own
 * name. */
static void put_arguments(struct export *x, struct str text, struct json_out *o)
{
    const struct json *parsed = NULL;
    struct err e;

    json_out_key(o, "arguments");
    if (text.p && json_parse(&x->scratch, text, &parsed, &e) == 0 && parsed->kind == JSON_OBJECT) {
        json_out_value(o, parsed);
        return;
    }
    json_out_obj(o);
    if (text.len > 0)
        json_out_member_str(o, "arguments", text);
    json_out_end_obj(o);
}

/* --- calls and results --- */

static void put_call(struct export *x, const struct json *call, struct lookup *ids,
                     struct json_out *o)
{
    const struct json *f = json_get(call, "function");
    struct str id = json_string(json_get(call, "id")), name = json_string(json_get(f, "name"));

    if (id.p)
        (void)lookup_add(ids, id, 0);
    json_out_obj(o);
    json_out_member_str(o, "tool_call_id", id.p ? id : STR(""));
    json_out_member_str(o, "function_name", name.p ? name : STR(""));
    put_arguments(x, json_string(json_get(f, "arguments")), o);
    json_out_end_obj(o);
}

/* Writes the calls of message m, and adds their ids to `ids`. */
MAY_PAUSE static void put_calls(struct export *x, const struct json *m, struct lookup *ids,
                                struct json_out *o)
{
    const struct json *calls = json_get(m, "tool_calls");

    if (json_is_null(calls) || calls->kind != JSON_ARRAY || calls->n == 0)
        return;
    json_out_member_arr(o, "tool_calls");
    for (uint32_t i = 0; i < calls->n && export_pause(x); i++)
        put_call(x, &calls->items[i], ids, o);
    json_out_end_arr(o);
}

/* Writes a tool's result. It names its call only if the step made the call. */
static void put_result(struct export *x, const struct json *result, const struct lookup *ids,
                       struct json_out *o)
{
    struct str id = json_string(json_get(result, "tool_call_id"));

    json_out_obj(o);
    if (id.p && lookup_get(ids, id) != LOOKUP_NONE)
        json_out_member_str(o, "source_call_id", id);
    json_out_key(o, "content");
    put_content(x, json_get(result, "content"), o);
    json_out_end_obj(o);
}

static bool is_result(const struct trajectory *t, uint32_t at)
{
    return at < t->messages->n && has_role(&t->messages->items[at], "tool");
}

/* Writes the tools' results that follow a step, from message `at` on. */
MAY_PAUSE static void put_results(struct export *x, const struct trajectory *t, uint32_t at,
                                  const struct lookup *ids, struct json_out *o)
{
    if (!is_result(t, at))
        return;
    json_out_member_obj(o, "observation");
    json_out_member_arr(o, "results");
    for (; is_result(t, at) && export_pause(x); at++)
        put_result(x, &t->messages->items[at], ids, o);
    json_out_end_arr(o);
    json_out_end_obj(o);
}

/* --- steps --- */

static void put_time(struct export *x, uint64_t ms, struct json_out *o)
{
    time_t s = (time_t)(ms / 1000);
    struct tm tm;

    if (!gmtime_r(&s, &tm))
        return;
    json_out_member_str(o, "timestamp",
                        arena_printf(&x->scratch, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ",
                                     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                                     tm.tm_min, tm.tm_sec, (unsigned)(ms % 1000)));
}

static void put_metrics(struct export *x, const struct trajectory *t,
                        const struct trajectory_turn *turn, struct json_out *o)
{
    uint32_t n = turn->end - turn->start, prompt = t->n_prompt + turn->start;

    json_out_member_obj(o, "metrics");
    if (!t->text) {
        json_out_member_i64(o, "prompt_tokens", prompt);
        json_out_member_i64(o, "completion_tokens", n);
    }
    if (turn->checkpoint->cached_told)
        json_out_member_i64(o, "cached_tokens", turn->checkpoint->cached_tokens);
    if (!t->text) {
        export_array(x, o, "prompt_token_ids", PIECE_JSON_I32, t->ids, prompt);
        export_array(x, o, "completion_token_ids", PIECE_JSON_I32, t->ids + prompt, n);
    }
    if (t->logprobs && turn->trained)
        export_array(x, o, "logprobs", PIECE_JSON_F32, t->logprobs + turn->start, n);
    json_out_end_obj(o);
}

static void put_turn(struct export *x, const struct trajectory *t,
                     const struct trajectory_turn *turn, struct json_out *o)
{
    put_metrics(x, t, turn, o);
    if (turn->checkpoint->copied)
        json_out_member_bool(o, "is_copied_context", true);
    json_out_member_obj(o, "extra");
    native_write_turn_members(t, turn, o);
    json_out_end_obj(o);
}

static const char *source_of(const struct json *m)
{
    if (has_role(m, "assistant"))
        return "agent";
    return has_role(m, "system") || has_role(m, "developer") ? "system" : "user";
}

/* Begins message m as a step, up to its calls. `turn`: the turn that generated it, or NULL. */
static void begin_step(struct export *x, const struct json *m, int64_t step,
                       const struct trajectory_turn *turn, struct json_out *o)
{
    struct str thought = json_string(json_get(m, "reasoning_content"));

    json_out_obj(o);
    json_out_member_i64(o, "step_id", step);
    if (turn)
        put_time(x, turn->checkpoint->at_ms, o);
    json_out_member_str(o, "source", str_cstr(source_of(m)));
    json_out_key(o, "message");
    put_content(x, json_get(m, "content"), o);
    if (has_role(m, "assistant") && thought.len > 0)
        json_out_member_str(o, "reasoning_content", thought);
}

/* Writes a completion, which has no messages: its turns are the steps. Returns their number. */
MAY_PAUSE static int64_t put_completions(struct export *x, const struct trajectory *t,
                                         struct json_out *o)
{
    for (uint32_t i = 0; i < t->n_turns && export_pause(x); i++) {
        const struct checkpoint *answer = t->turns[i].checkpoint;

        json_out_obj(o);
        json_out_member_i64(o, "step_id", (int64_t)i + 1);
        put_time(x, answer->at_ms, o);
        json_out_member_str(o, "source", STR("agent"));
        json_out_key(o, "message");
        put_content(x, json_get(answer->message, "content"), o);
        put_turn(x, t, &t->turns[i], o);
        json_out_end_obj(o);
    }
    return t->n_turns;
}

/* Writes the messages as steps. A tool's result is a step of its own only if no agent's step
 * precedes it. Returns the number of steps. */
MAY_PAUSE static int64_t put_messages(struct export *x, const struct trajectory *t,
                                      struct json_out *o)
{
    bool observed = false; /* whether the agent's step before has had its results */
    uint32_t n_turns = 0;
    int64_t steps = 0;

    for (uint32_t i = 0; i < t->messages->n && export_pause(x); i++) {
        const struct json *m = &t->messages->items[i];
        const struct trajectory_turn *turn = NULL;
        struct lookup ids = {.arena = &x->scratch};

        if (has_role(m, "tool") && observed)
            continue;
        if (t->generated[i] && n_turns < t->n_turns)
            turn = &t->turns[n_turns++];
        begin_step(x, m, ++steps, turn, o);
        observed = has_role(m, "assistant");
        if (observed) {
            put_calls(x, m, &ids, o);
            put_results(x, t, i + 1, &ids, o);
        }
        if (turn)
            put_turn(x, t, turn, o);
        json_out_end_obj(o);
    }
    return steps;
}

/* --- the document --- */

static void put_agent(const struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct message_node *node = t->track->head->node;
    struct str name = json_string(json_get(session_view(x->session).metadata, "agent_name"));
    struct str version = json_string(json_get(session_view(x->session).metadata, "agent_version"));

    json_out_member_obj(o, "agent");
    json_out_member_str(o, "name", name.len > 0 ? name : STR("unknown"));
    json_out_member_str(o, "version", version.len > 0 ? version : STR("unknown"));
    if (x->input.model)
        json_out_member_str(o, "model_name", str_cstr(model_info(x->input.model)->name));
    if (node && node->env->tools)
        json_out_member_value(o, "tool_definitions", node->env->tools);
    json_out_end_obj(o);
}

static void put_final_metrics(const struct trajectory *t, int64_t steps, struct json_out *o)
{
    int64_t prompts = 0, completions = 0, cached = 0;
    bool told = t->n_turns > 0;

    for (uint32_t i = 0; i < t->n_turns; i++) {
        prompts += (int64_t)t->n_prompt + t->turns[i].start;
        completions += (int64_t)t->turns[i].end - t->turns[i].start;
        cached += t->turns[i].checkpoint->cached_tokens;
        told = told && t->turns[i].checkpoint->cached_told;
    }
    json_out_member_obj(o, "final_metrics");
    if (!t->text) {
        json_out_member_i64(o, "total_prompt_tokens", prompts);
        json_out_member_i64(o, "total_completion_tokens", completions);
    }
    if (told)
        json_out_member_i64(o, "total_cached_tokens", cached);
    json_out_member_i64(o, "total_steps", steps);
    json_out_end_obj(o);
}

MAY_PAUSE static void atif_write(struct export *x, const struct trajectory *t)
{
    struct json_out o = {&x->rope.text, t->index > 0};
    struct str head = t->track->head->response_id;
    int64_t steps;

    json_out_obj(&o);
    json_out_member_str(&o, "schema_version", str_cstr(VERSION));
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_str(&o, "trajectory_id",
                        arena_printf(&x->scratch, "%.*s-%.*s", (int)session_view(x->session).id.len,
                                     session_view(x->session).id.p, (int)head.len, head.p));
    put_agent(x, t, &o);
    json_out_member_arr(&o, "steps");
    steps = t->messages->n > 0 ? put_messages(x, t, &o) : put_completions(x, t, &o);
    json_out_end_arr(&o);
    put_final_metrics(t, steps, &o);
    json_out_member_obj(&o, "extra");
    group_put(x->session, &o);
    json_out_member_i64(&o, "trajectory_index", (int64_t)t->index);
    native_write_outcome(x, t, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

static void atif_begin(struct export *x, struct buf *out)
{
    (void)x;
    buf_puts(out, "{\"trajectories\":[");
}

const struct format format_atif = {.text_too = true,
                                   .passes = 1,
                                   .begin = atif_begin,
                                   .write = atif_write,
                                   .end = native_write_end};
