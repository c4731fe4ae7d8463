/* fuzz: rg_worker */
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "worker/plane/api/inputs.h"
#include "worker/plane/api/routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds of every refusal: one kind, a sentence that can be sent, and the field's name. */
static void check_refusal(const struct err *e)
{
    struct str text = str_cstr(e->text);

    CHECK(e->kind == ERR_INVALID && text.len > 0);
    CHECK(utf8_valid(text) && utf8_valid(str_cstr(e->param)));
}

static int ask(const struct api_route *route, struct str query, struct str body)
{
    struct arena a = {0};
    const struct json *read;
    struct err e = {0};
    int rc = inputs_check(route, query, body, &a, &read, &e);

    CHECK(rc == 0 || rc == -1);
    if (rc)
        check_refusal(&e);
    else
        CHECK(e.kind == ERR_NONE && (!read || json_is(read, JSON_OBJECT)));
    arena_done(&a);
    return rc;
}

/* The first byte names a route; a line is the query, the rest the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t all = routes_global.n + routes_session.n;
    struct str given, query, body;
    const struct api_route *route;
    size_t n, line;
    char *exact;
    int rc;

    if (size == 0)
        return 0;
    n = data[0] % all;
    route = n < routes_global.n ? &routes_global.at[n] : &routes_session.at[n - routes_global.n];
    exact = malloc(MAX_OF(size - 1, (size_t)1)); /* exactly so long: reads beyond it are found */
    CHECK(exact);
    memcpy(exact, data + 1, size - 1);
    given = str_of(exact, size - 1);
    line = str_find(given, STR("\n"), 0);
    query = str_sub(given, 0, line);
    body = line == SIZE_MAX ? str_of(exact, 0) : str_sub(given, line + 1, SIZE_MAX);
    rc = ask(route, query, body);
    CHECK(rc == ask(route, query, body)); /* nothing is remembered */
    if (rc == 0) {                        /* each half stands alone, too */
        CHECK(ask(route, query, str_of(exact, 0)) == 0);
        CHECK(ask(route, str_of(exact, 0), body) == 0);
    }
    if (route->inputs == INPUT_NOTHING)
        CHECK(rc == 0 || query.len > 0 || body.len > 0);
    free(exact);
    return 0;
}
