/* Writes the response object around the items, and selects the members of the request that it
 * echoes. */
#include "worker/dialect/responses_internal.h"

#include "common/codec/json.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/asked_text.h"

/* Members of the request that the response object echoes, and their defaults as JSON. */
static const char *const echoed[][2] = {
    {"instructions", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"temperature", "1.0"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"top_p", "1.0"},
    {"max_output_tokens", "null"},
    {"previous_response_id", "null"},
    {"reasoning", "{\"effort\":null,\"summary\":null}"},
    {"store", "true"},
    {"text", "{\"format\":{\"type\":\"text\"}}"},
    {"truncation", "\"disabled\""},
    {"user", "null"},
    {"include", NULL}, /* only recorded: it decides which members the items have */
};

const char *responses_echoed(size_t i)
{
    return i < ARRAY_LEN(echoed) ? echoed[i][0] : NULL;
}

/* Returns a member to echo. Tools come from the whole request, not only from its list. */
static const struct json *echo_of(struct arena *a, const struct json *body, const char *key)
{
    return strcmp(key, "tools") == 0 ? responses_tools_of(a, body) : json_get(body, key);
}

/* Echoes a member as it was sent, or the API's default as JSON text. */
static void echo_member(struct responses_writer *rw, struct json_out *o, const char *key,
                        const char *otherwise)
{
    const struct json *v = echo_of(rw->w.a, rw->w.body, key);

    if (!otherwise)
        return;
    json_out_key(o, key);
    if (json_is_null(v))
        json_out_raw(o, str_cstr(otherwise));
    else
        json_out_value(o, v);
}

/* Writes an object with one count. */
static void usage_details(struct json_out *o, const char *of, const char *what, int64_t n)
{
    json_out_member_obj(o, of);
    json_out_member_i64(o, what, n);
    json_out_end_obj(o);
}

static void write_usage(struct json_out *o, const struct call_usage *u)
{
    json_out_obj(o);
    json_out_member_i64(o, "input_tokens", u->prompt_tokens);
    usage_details(o, "input_tokens_details", "cached_tokens", u->cached_tokens);
    json_out_member_i64(o, "output_tokens", u->completion_tokens);
    usage_details(o, "output_tokens_details", "reasoning_tokens", u->reasoning_tokens);
    json_out_member_i64(o, "total_tokens", (int64_t)u->prompt_tokens + u->completion_tokens);
    json_out_end_obj(o);
}

static void write_head(struct responses_writer *rw, struct json_out *o, const char *object)
{
    json_out_key(o, "id");
    write_id(o, "resp_", rw->w.head.response_id);
    json_out_member_cstr(o, "object", object);
    json_out_member_i64(o, "created_at", (int64_t)rw->w.head.created_s);
}

/* Writes every member, with the API's default if the request did not have it. */
void responses_object(struct responses_writer *rw, struct json_out *o, const char *status,
                      const struct call_usage *usage, const struct err *e)
{
    json_out_obj(o);
    write_head(rw, o, "response");
    json_out_member_cstr(o, "status", status);
    json_out_member_str(o, "model", rw->w.req->model.p ? rw->w.req->model : STR(""));
    json_out_key(o, "error");
    if (e)
        openai_error_object(o, e);
    else
        json_out_null(o);
    json_out_key(o, "incomplete_details");
    if (rw->incomplete) {
        json_out_obj(o);
        json_out_member_str(o, "reason", str_cstr(rw->incomplete));
        json_out_end_obj(o);
    } else {
        json_out_null(o);
    }
    json_out_member_arr(o, "output");
    if (rw->output.len)
        json_out_raw(o, grown_str(&rw->output));
    json_out_end_arr(o);
    for (size_t i = 0; i < ARRAY_LEN(echoed); i++)
        echo_member(rw, o, echoed[i][0], echoed[i][1]);
    json_out_key(o, "usage");
    if (usage)
        write_usage(o, usage);
    else
        json_out_null(o);
    json_out_end_obj(o);
}

void compaction_object(struct responses_writer *rw, struct json_out *o,
                       const struct call_usage *usage)
{
    json_out_obj(o);
    write_head(rw, o, "response.compaction");
    json_out_member_arr(o, "output");
    json_out_raw(o, grown_str(&rw->output));
    json_out_end_arr(o);
    json_out_key(o, "usage");
    write_usage(o, usage);
    json_out_end_obj(o);
}

/* Reports whether the member differs between the calls of an agent. */
static bool is_per_call(const char *key)
{
    return strcmp(key, "metadata") == 0 || strcmp(key, "previous_response_id") == 0;
}

/* Longer instructions (in bytes) are not stored a second time, since the prompt has them. */
enum { INSTRUCTIONS_LONG = 4 << 10 };

/* Reports whether the member belongs to this recorded text. ASKED_OWN: members of this call.
 * Others: members that all calls of an agent share, which are stored once; ASKED_BRIEF: without
 * instructions. */
static bool is_asked(const char *key, enum asked_text which)
{
    if (which == ASKED_BRIEF && strcmp(key, "instructions") == 0)
        return false;
    return is_per_call(key) == (which == ASKED_OWN);
}

/* Returns one recorded text: the members that a stored answer must echo. */
static struct str asked_text(struct arena *a, const struct json *body, struct str model,
                             enum asked_text which, bool compacts)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    struct str ret;

    json_out_obj(&o);
    if (model.p)
        json_out_member_str(&o, "model", model);
    for (size_t i = 0; i < ARRAY_LEN(echoed); i++) {
        const struct json *v = echo_of(a, body, echoed[i][0]);

        if (json_is_null(v) || !is_asked(echoed[i][0], which))
            continue;
        json_out_member_value(&o, echoed[i][0], v);
    }
    if (which == ASKED_OWN && compacts)
        json_out_member_bool(&o, COMPACTED, true);
    json_out_end_obj(&o);
    ret = arena_str(a, buf_str(&text));
    buf_done(&text);
    return ret;
}

/* Only the text's own last member is followed by its end alone. */
bool responses_asked_compacts(struct str asked)
{
    return str_ends(asked, STR("\"" COMPACTED "\":true}"));
}

/* Returns `brief` with instructions as its last member. `brief` is not empty, since it has the
 * model. */
static struct str with_instructions(struct arena *a, struct str brief, struct str instructions)
{
    struct buf text = {0};
    struct str ret;

    buf_add_str(&text, str_sub(brief, 0, brief.len - 1));
    buf_puts(&text, ",\"instructions\":");
    json_write_string(&text, instructions);
    buf_add_c(&text, '}');
    ret = arena_str(a, buf_str(&text));
    buf_done(&text);
    return ret;
}

static const struct str *asked_texts(struct arena *a, const struct chat_request *req,
                                     const struct json *body, bool compacts)
{
    struct str *ret = arena_calloc(a, ASKED_TEXTS, sizeof(*ret));
    struct str instructions = json_string(json_get(body, "instructions"));

    ret[ASKED_OWN] = asked_text(a, body, (struct str){0}, ASKED_OWN, compacts);
    if (instructions.len <= INSTRUCTIONS_LONG) {
        ret[ASKED_SHARED] = asked_text(a, body, req->model, ASKED_SHARED, false);
        return ret;
    }
    ret[ASKED_BRIEF] = asked_text(a, body, req->model, ASKED_BRIEF, false);
    ret[ASKED_INSTRUCTIONS] = instructions;
    ret[ASKED_SHARED] = with_instructions(a, ret[ASKED_BRIEF], instructions);
    return ret;
}

const struct str *responses_asked(struct arena *a, const struct chat_request *req,
                                  const struct json *body)
{
    return asked_texts(a, req, body, responses_compacts(body));
}

const struct str *compact_asked(struct arena *a, const struct chat_request *req,
                                const struct json *body)
{
    return asked_texts(a, req, body, true);
}
