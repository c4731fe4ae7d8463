/* fuzz: rg_runner */
#include "runner/roster.h"

#include "common/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A runner file, and behind its first NUL the input of a task for all that it names. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_of((const char *)data, size), rest = {0};
    struct buf mistakes = {0};
    struct arena a = {0};
    const struct json *input = NULL;
    struct roster roster;
    struct err e;
    const char *nul = size ? memchr(text.p, 0, size) : NULL;
    int rc;

    if (nul) {
        rest = str_sub(text, (size_t)(nul - text.p) + 1, size);
        text.len = (size_t)(nul - text.p);
    }
    rc = roster_read(text, "f", &roster, &mistakes);
    CHECK((rc == 0) == (mistakes.len == 0));
    if (rest.p && json_parse(&a, rest, &input, &e))
        input = NULL;
    for (size_t i = 0; rc == 0 && i < roster.n; i++) {
        const struct roster_runner *r = &roster.at[i];
        char **argv = NULL;

        CHECK(roster_find(&roster, str_cstr(r->name)) == r && !r->run == !!r->http);
        if (r->run && roster_arguments(&a, r->run, input, &argv, &e) == 0)
            CHECK(argv[0] == r->run[0]);
    }
    roster_done(&roster);
    arena_done(&a);
    buf_done(&mistakes);
    return 0;
}
