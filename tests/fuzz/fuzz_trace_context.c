/* fuzz: rg_worker */
/* traceparent and, behind a line end, tracestate: what is read is written in a form that reads back
 * to the same, and a state that is passed on cannot end its header's line. */
#include <string.h>

#include "common/base/check.h"
#include "worker/trace/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_of((const char *)data, size);
    size_t cut = str_find(all, STR("\n"), 0);
    struct str state = cut == SIZE_MAX ? (struct str){0} : str_sub(all, cut + 1, size);
    struct trace_context c, again;
    char text[TRACE_PARENT_LEN + 1];

    if (trace_parent_read(str_sub(all, 0, cut == SIZE_MAX ? size : cut), &c) == 0) {
        trace_parent_write(&c, text);
        CHECK(strlen(text) == TRACE_PARENT_LEN && trace_parent_read(str_cstr(text), &again) == 0);
        CHECK(memcmp(&c, &again, sizeof(c)) == 0);
    }
    for (size_t i = 0; trace_state_valid(state) && i < state.len; i++)
        CHECK((unsigned char)state.p[i] >= ' ' || state.p[i] == '\t');
    return 0;
}
