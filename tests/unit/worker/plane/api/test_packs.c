/* The requests whose bodies are packed while they arrive: those that helpers read. */
#include "testing.h"
#include "worker/plane/api/dispatch.h"

#include "common/base/str.h"

static const struct {
    const char *line;
    bool packs;
} cases[] = {
    {"POST /sessions/s1/v1/chat/completions HTTP/1.1", true},
    {"POST /sessions/s1/chat/completions HTTP/1.1", true},
    {"POST /v1/messages?beta=true HTTP/1.1", true},
    {"POST /responses HTTP/1.1", true},
    {"POST /openai/deployments/m/chat/completions?api-version=1 HTTP/1.1", true},
    {"POST /v1/embeddings HTTP/1.1", false},
    {"POST /sessions/s1/v1/embeddings HTTP/1.1", false},
    {"POST /sessions/import?from=/v1/messages HTTP/1.1", false},
    {"POST /sessions/import HTTP/1.1", false},
    {"POST /sessions?x=/v1/ HTTP/1.1", false},
    {"POST", false},
    {"", false},
};

TEST(packs, only_bodies_of_model_calls)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_expect_eq(dispatch_packs(str_cstr(cases[i].line)), cases[i].packs, "%s", cases[i].line);
}
