/* fuzz: rg_worker */
/*
 * The small texts from outside: byte 0 chooses an Accept header, a query or an engine's refusal
 * (byte 1: its status).
 */
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "worker/engine/wire/refusal.h"
#include "worker/export/build/accept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void query(struct arena *a, struct str text)
{
    static const char *const names[] = {"format", "select", "a", ""};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        CHECK(query_get(a, text, names[i]).len <= text.len);
}

static void refusal(struct arena *a, struct str body, int64_t status)
{
    struct err e = {0};
    struct buf said = {0};
    struct json_out o = json_out_to(&said);

    (void)refusal_of(status, refusal_text(a, body), &e);
    CHECK(e.kind != ERR_NONE && e.text[0]);
    CHECK(e.kind == ERR_CONTEXT_LENGTH || e.overflow.max == 0);
    json_out_cstr(&o, e.text); /* as the client gets it */
    CHECK(utf8_valid(buf_str(&said)));
    buf_done(&said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t statuses[] = {400, 401, 404, 422, 429, 500, 503, 599};
    struct arena a = {0};
    struct str text;

    if (size < 2)
        return 0;
    text = str_of((const char *)data + 2, size - 2);
    switch (data[0] % 3) {
    case 0:
        (void)accept_format(text, EXPORT_JSON);
        break;
    case 1:
        query(&a, text);
        break;
    default:
        refusal(&a, text, statuses[data[1] % ARRAY_LEN(statuses)]);
    }
    arena_done(&a);
    return 0;
}
