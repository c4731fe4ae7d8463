/* fuzz: rg_template */
/* Compiles arbitrary text and renders it with small budgets over a fixed context: any outcome is
 * fine but a crash, output after an error, or more memory or time than the budgets say. */
#include <stddef.h>
#include <stdint.h>

#include "common/base/check.h"
#include "fuzz_limits.h"
#include "worker/text/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char CONTEXT[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\\u00e9\"},{\"role\":\"user\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"a\\nb\"}]},{\"role\":\"assistant\",\"content\":\"\","
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[1,null]}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"n\":3,\"big\":"
    "123456789012345678901234567890,\"s\":\"Hello\",\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":2}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct template_options o = {.max_steps = 20000,
                                 .max_output_bytes = 1 << 20,
                                 .max_memory_bytes = 8 << 20,
                                 .max_depth = 200};
    struct tm now = {.tm_year = 125, .tm_mon = 6, .tm_mday = 10};
    struct template_error error = {0};
    const struct json *context;
    struct arena a = {0};
    struct buf out = {0};
    struct template *t;
    struct err e;

    fuzz_limits_begin();
    o.now = &now;
    o.error = &error;
    o.continue_final_message = size % 7 == 0;
    CHECK(json_parse(&a, str_of(CONTEXT, sizeof(CONTEXT) - 1), &context, &e) == 0);
    if (template_compile(str_of((const char *)data, size), "fuzz", &t, &error, &e) == 0) {
        if (template_render(t, &a, context, &o, &out, &e) != 0)
            CHECK(out.len == 0 && error.kind);
        template_free(t);
    } else {
        CHECK(error.kind && error.message.len);
    }
    CHECK(a.used_bytes <= (16 << 20));
    buf_done(&out);
    arena_done(&a);
    fuzz_limits_end(size);
    return 0;
}
