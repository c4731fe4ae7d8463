#include "worker/engine/wire/upstream_finish.h"

#include "common/base/attrs.h"

static const struct {
    const char *word;
    enum upstream_finish means;
} words[] = {
    {"", UPSTREAM_RUNNING},
    {"null", UPSTREAM_RUNNING}, /* DashScope */
    {"stop", UPSTREAM_STOP},
    {"stop_sequence", UPSTREAM_STOP},
    {"stop_token", UPSTREAM_STOP},
    {"eos", UPSTREAM_STOP},
    {"eos_token", UPSTREAM_STOP},
    {"end_turn", UPSTREAM_STOP},
    {"complete", UPSTREAM_STOP},
    {"completed", UPSTREAM_STOP},
    {"repetition", UPSTREAM_REPEATS},
    {"length", UPSTREAM_LENGTH},
    {"max_tokens", UPSTREAM_LENGTH},
    {"max_new_tokens", UPSTREAM_LENGTH},
    {"max_output_tokens", UPSTREAM_LENGTH},
    {"model_length", UPSTREAM_LENGTH}, /* Mistral */
    {"model_context_window_exceeded", UPSTREAM_LENGTH},
    {"incomplete", UPSTREAM_LENGTH},
    {"tool_calls", UPSTREAM_CALLS},
    {"tool_call", UPSTREAM_CALLS},
    {"tool_use", UPSTREAM_CALLS},
    {"function_call", UPSTREAM_CALLS},
    {"content_filter", UPSTREAM_FILTERED},
    {"content_filtered", UPSTREAM_FILTERED},
    {"guardrail_intervened", UPSTREAM_FILTERED},
    {"refusal", UPSTREAM_FILTERED},
    {"sensitive", UPSTREAM_FILTERED}, /* GLM */
    {"safety", UPSTREAM_FILTERED},    /* Gemini, like the next ones */
    {"recitation", UPSTREAM_FILTERED},
    {"blocklist", UPSTREAM_FILTERED},
    {"prohibited_content", UPSTREAM_FILTERED},
    {"spii", UPSTREAM_FILTERED},
    {"abort", UPSTREAM_ABORTED},
    {"aborted", UPSTREAM_ABORTED},
    {"cancelled", UPSTREAM_ABORTED},
    {"insufficient_system_resource", UPSTREAM_ABORTED}, /* DeepSeek */
    {"error", UPSTREAM_FAILED},
    {"network_error", UPSTREAM_FAILED}, /* GLM */
    {"timeout", UPSTREAM_FAILED},
    {"function_call_filter", UPSTREAM_FAILED}, /* Gemini: it failed to write a call */
    {"malformed_function_call", UPSTREAM_FAILED},
    {"unexpected_tool_call", UPSTREAM_FAILED},
};

enum upstream_finish upstream_finish_read(struct str word)
{
    struct str name = str_trim(str_sub(word, 0, str_find(word, STR(":"), 0)));

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq_nocase(name, str_cstr(words[i].word)))
            return words[i].means;
    return UPSTREAM_UNKNOWN;
}
