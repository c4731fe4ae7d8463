/* Writes items of a response as JSON, and their content parts. A stream has each item twice: when
 * it is added (done = false: empty, in_progress), and when it is done, with its text. The response
 * object at the end has the done form. */
#include <string.h>

#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "worker/dialect/request_fields.h"
#include "worker/dialect/responses_internal.h"
#include "worker/dialect/writers.h"

/* Reports whether the request includes "reasoning.encrypted_content". */
bool responses_wants_encrypted(const struct responses_writer *rw)
{
    const struct json *include = json_get(rw->w.body, "include");

    for (size_t i = 0; json_at(include, i); i++)
        if (str_eq_c(json_string(json_at(include, i)), "reasoning.encrypted_content"))
            return true;
    return false;
}

/* Begins an item: {"type", "id", "status". Leaves the object open. */
static void begin_item(struct json_out *o, const char *type, struct str id, bool done)
{
    json_out_obj(o);
    json_out_member_cstr(o, "type", type);
    json_out_member_str(o, "id", id);
    json_out_member_cstr(o, "status", done ? "completed" : "in_progress");
}

/* Writes the single part of a message (output_text) or a thought (reasoning_text). A message's
 * finished part has the logprobs. */
void responses_part(struct responses_writer *rw, struct json_out *o, struct str text)
{
    bool message = rw->open == ITEM_MESSAGE;

    json_out_obj(o);
    json_out_member_cstr(o, "type", message ? "output_text" : "reasoning_text");
    json_out_member_str(o, "text", text);
    if (message) {
        json_out_member_arr(o, "annotations");
        json_out_end_arr(o);
        json_out_member_arr(o, "logprobs");
        if (text.len && rw->logprobs.len > rw->logprobs_told)
            json_out_raw(o, str_sub(grown_str(&rw->logprobs), rw->logprobs_told, SIZE_MAX));
        json_out_end_arr(o);
    }
    json_out_end_obj(o);
}

/* Writes a thought. Its summary is empty, since the whole thought is written. Its
 * encrypted_content is the upstream's seal, or names the response if there is no seal. Clients
 * send it back unread. */
static void write_reasoning_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    begin_item(o, "reasoning", rw->id, done);
    json_out_member_arr(o, "summary");
    json_out_end_arr(o);
    json_out_member_arr(o, "content");
    if (done)
        responses_part(rw, o, grown_str(&rw->text));
    json_out_end_arr(o);
    if (responses_wants_encrypted(rw)) {
        json_out_key(o, "encrypted_content");
        if (rw->seal.len)
            json_out_str(o, rw->seal);
        else
            write_id(o, RESPONSES_THOUGHT_SEAL, rw->w.head.response_id);
    }
    json_out_end_obj(o);
}

/* Writes the item of the answer's text. */
static void write_message_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    begin_item(o, "message", rw->id, done);
    json_out_member_cstr(o, "role", "assistant");
    json_out_member_arr(o, "content");
    if (done)
        responses_part(rw, o, grown_str(&rw->text));
    json_out_end_arr(o);
    json_out_end_obj(o);
}

/* Writes a call of a function or of a custom tool, whose text is unwrapped. */
static void write_call_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    bool custom = rw->open == ITEM_CUSTOM;

    begin_item(o, custom ? "custom_tool_call" : "function_call", rw->id, done);
    json_out_member_str(o, "call_id", rw->call_id);
    json_out_member_str(o, "name", rw->name);
    if (rw->space.len)
        json_out_member_str(o, "namespace", rw->space);
    json_out_member_str(o, custom ? "input" : "arguments",
                        !done    ? STR("")
                        : custom ? freeform_input(rw->w.a, grown_str(&rw->text))
                                 : grown_str(&rw->text));
    json_out_end_obj(o);
}

/* Writes a tool_search_call, which the client runs. `arguments` is an object. */
static void write_search_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    const struct json *v = NULL;

    if (done && json_parse(rw->w.a, arena_str(rw->w.a, grown_str(&rw->text)), &v, NULL) != 0)
        v = NULL;
    begin_item(o, "tool_search_call", rw->id, done);
    json_out_member_str(o, "call_id", rw->call_id);
    json_out_member_cstr(o, "execution", "client");
    json_out_key(o, "arguments");
    if (json_is(v, JSON_OBJECT))
        json_out_value(o, v);
    else
        json_out_raw(o, STR("{}"));
    json_out_end_obj(o);
}

static const char seal[] = "rollgate-compaction:";

struct str compaction_summary(const struct json *message)
{
    struct str text = json_string(json_get(message, "content"));

    return text_blank(text) ? STR("(No summary was written.)") : text;
}

/* Returns the content of a compaction item with this summary, in the arena. */
static struct str compaction_seal(struct arena *a, struct str summary)
{
    size_t head = strlen(seal), n = base64_encoded_len(summary.len);
    char *p = arena_alloc(a, head + n);

    memcpy(p, seal, head);
    base64_encode(summary.p ? summary.p : "", summary.len, p + head);
    return str_of(p, head + n);
}

struct str compaction_open(struct arena *a, struct str sealed)
{
    struct str text = str_sub(sealed, strlen(seal), sealed.len);
    size_t n = 0;
    char *p;

    if (!str_starts(sealed, str_cstr(seal)))
        return (struct str){0};
    p = arena_alloc(a, text.len + 1);
    if (base64_decode(text, p, &n) != 0 || !utf8_valid(str_of(p, n)))
        return (struct str){0};
    return str_of(p, n);
}

/* Writes a compaction item. Codex sends its content back unread. */
static void write_compaction_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    json_out_obj(o);
    json_out_member_cstr(o, "type", "compaction");
    json_out_member_str(o, "id", rw->id);
    json_out_member_str(o, "encrypted_content",
                        done ? compaction_seal(rw->w.a, grown_str(&rw->text)) : STR(""));
    json_out_end_obj(o);
}

void responses_item(struct responses_writer *rw, struct json_out *o, bool done)
{
    if (rw->open == ITEM_REASONING)
        write_reasoning_item(rw, o, done);
    else if (rw->open == ITEM_MESSAGE)
        write_message_item(rw, o, done);
    else if (rw->open == ITEM_COMPACTION)
        write_compaction_item(rw, o, done);
    else if (rw->open == ITEM_SEARCH)
        write_search_item(rw, o, done);
    else
        write_call_item(rw, o, done);
}
