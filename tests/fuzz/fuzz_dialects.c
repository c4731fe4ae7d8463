/* fuzz: rg_worker */
#include "common/base/check.h"
#include "common/codec/json.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat.h"

/* Byte 0 picks the dialect; the rest is a request body. It is parsed or refused with a field and a
 * text, and what is accepted has messages or a prompt, and a bounded list of what it drops. */
static const struct json *past(void *ctx, struct arena *a, struct str id,
                               struct str *ret_instructions)
{
    const struct json *v = NULL;

    (void)ctx;
    *ret_instructions = (struct str){0};
    if (id.len % 2)
        return NULL;
    CHECK(json_parse(a,
                     STR("[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
                         "\"content\":\"y\",\"tool_calls\":[{\"id\":\"c\",\"function\":{}}]}]"),
                     &v, NULL) == 0);
    return v;
}

/* "cc" answers a compaction. */
static const struct json *past_message(void *ctx, struct str id, bool *ret_compacts)
{
    struct str instructions;

    *ret_compacts = str_eq_c(id, "cc");
    return json_at(past(NULL, ctx, id, &instructions), 1);
}

static void check_dropped(struct arena *a, const struct dialect *d, const struct json *body,
                          struct chat_request *req)
{
    const struct json *names = NULL;

    request_find_dropped(a, d, body, 0, (struct member_readers){0}, req);
    CHECK((req->dropped.names.p != NULL) == (req->dropped.unknown + req->dropped.unused > 0));
    if (!req->dropped.names.p)
        return;
    CHECK(json_parse(a, req->dropped.names, &names, NULL) == 0 && names->n > 0 &&
          names->n <= DROPPED_NAMES_MAX);
    for (uint32_t i = 0; i < names->n; i++)
        CHECK(json_string(&names->items[i]).len <= DROPPED_NAME_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dialect *const all[] = {&dialect_chat, &dialect_messages,
                                                &dialect_count_tokens, &dialect_responses,
                                                &dialect_completions};
    struct arena a = {0};
    const struct dialect_past earlier = {.response = past, .message = past_message, .ctx = &a};
    const struct json *body;
    struct chat_request req;
    struct err e = {0};

    if (size < 1)
        return 0;
    if (json_parse_replacing(&a, str_of((const char *)data + 1, size - 1), &body, &e) == 0 &&
        body->kind == JSON_OBJECT) {
        if (all[data[0] % 5]->parse(&a, body, NULL, &earlier, &req, &e) != 0) {
            CHECK(e.kind == ERR_INVALID && e.param[0] && e.text[0]);
        } else {
            CHECK(req.chat->messages ? req.chat->messages->n > 0
                                     : req.prompt.len > 0 || req.prompt_ids.n > 0);
            CHECK(req.n >= 1);
            check_dropped(&a, all[data[0] % 5], body, &req);
        }
    }
    arena_done(&a);
    return 0;
}
