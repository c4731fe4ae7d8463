/* Maps paths to dialects (dialect.h). The only list of paths: /openapi.json and the hints for
 * unknown paths use it, too (dialect_path_at). */

#include "worker/dialect/dialect.h"

#include "common/base/attrs.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/writers.h"

static const struct {
    const char *path;
    const struct dialect *dialect;
    const char *summary;
} dialects[] = {
    {"/chat/completions", &dialect_chat, "Samples a turn (OpenAI Chat Completions)"},
    {"/messages", &dialect_messages, "Samples a turn (Anthropic Messages)"},
    {"/messages/count_tokens", &dialect_count_tokens, "Counts the tokens of a prompt (Anthropic)"},
    {"/responses", &dialect_responses, "Samples a turn (OpenAI Responses)"},
    {"/responses/compact", &dialect_compact, "Samples a summary of the history (Codex)"},
    {"/completions", &dialect_completions, "Samples a continuation of a text (OpenAI Completions)"},
};

/* Returns the dialect's path at the end of an Azure path. The model's name before it may contain
 * slashes. */
static struct str strip_deployment(struct str path)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
        if (str_ends(path, str_cstr(dialects[i].path)))
            return str_cstr(dialects[i].path);
    return path;
}

struct str dialect_path(struct str path)
{
    while (str_starts(path, STR("/v1/")) || str_starts(path, STR("/openai/")))
        path = str_sub(path, str_find(path, STR("/"), 1), SIZE_MAX);
    return str_starts(path, STR("/deployments/")) ? strip_deployment(path) : path;
}

const char *dialect_path_at(size_t i)
{
    return i < ARRAY_LEN(dialects) ? dialects[i].path : NULL;
}

const char *dialect_summary_at(size_t i)
{
    return i < ARRAY_LEN(dialects) ? dialects[i].summary : NULL;
}

const struct dialect *dialect_for_path(struct str path)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
        if (str_eq_c(path, dialects[i].path))
            return dialects[i].dialect;
    return NULL;
}
