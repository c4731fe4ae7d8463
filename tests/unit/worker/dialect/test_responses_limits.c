/* Limits of the members of a Responses request that are recorded with its call but are in no
 * prompt. */
#include "common/base/limits.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat_request.h"

/* Parses a body and checks it against the limit. The error must be about `param` ("": no error). */
static void expect(const char *body, uint64_t most, const char *param)
{
    struct arena a = {0};
    const struct json *v = NULL;
    const struct dialect_past past = {0};
    struct chat_request req;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, str_cstr(body), &v, &e), 0, "%s: %s", body, e.text);
    cr_assert_eq(dialect_responses.parse(&a, v, NULL, &past, &req, &e), 0, "%s: %s", body, e.text);
    cr_expect_eq(dialect_responses.recorded(&a, v, most, &e), *param ? -1 : 0, "%s", body);
    cr_expect_str_eq(e.param, param, "%s: %s", body, e.text);
    if (*param)
        cr_expect(str_find(str_cstr(e.text), str_cstr(param), 0) != SIZE_MAX &&
                      str_find(str_cstr(e.text), STR("--max-metadata-bytes allows 20"), 0) !=
                          SIZE_MAX,
                  "%s", e.text);
    arena_done(&a);
}

#define REST "\"input\":\"a text that is longer than all that may be recorded\"}"
#define LONG "\"a text of more than twenty bytes\""

TEST(responses_limits, members_count_together)
{
    expect("{\"instructions\":" LONG "," REST, 20, "");
    expect("{\"user\":\"01234567890123456789\"," REST, 20, "");
    expect("{\"user\":\"012345678901234567890\"," REST, 20, "user");
    expect("{\"model\":" LONG "," REST, 20, "model");
    expect("{\"truncation\":\"0123456789\",\"user\":\"0123456789\"," REST, 20, "");
    expect("{\"truncation\":\"01234567890\",\"user\":\"0123456789\"," REST, 20, "user");
    expect("{\"include\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\"]," REST,
           20, "include");
    expect("{\"reasoning\":{\"x\":" LONG "}," REST, 20, "reasoning");
    expect("{\"metadata\":{\"x\":" LONG "}," REST, 20, "metadata");
    expect("{\"text\":{\"verbosity\":" LONG "}," REST, 20, "text");
    expect("{\"store\":true,\"background\":false,\"safety_identifier\":" LONG "," REST, 20, "");
}

TEST(responses_limits, a_schema_has_a_limit_of_its_own)
{
#define FORMAT "\"schema\":{\"type\":\"object\",\"description\":" LONG "}}}," REST

    expect("{\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\"," FORMAT, 50, "");
    expect("{\"text\":{\"format\":{\"type\":\"text\"," FORMAT, 20, "text");
}

TEST(responses_limits, tools_count_where_no_prompt_has_them)
{
#define FUNCTION "{\"type\":\"function\",\"name\":\"f\",\"description\":" LONG
#define MANY LONG "," LONG "," LONG "," LONG

    expect("{\"tools\":[" FUNCTION "}]," REST, 20, "");
    expect("{\"tools\":[" FUNCTION ",\"strict\":true}]," REST, 20, "");
    expect("{\"tools\":[" FUNCTION ",\"x\":[" MANY "]}]," REST, 20, "tools");
    expect("{\"tools\":[" FUNCTION "}," FUNCTION "}]," REST, 20, "tools"); /* one is reported */
    expect("{\"tools\":[{\"type\":\"web_search\"}]," REST, 20, "");
    expect("{\"tools\":[{\"type\":\"web_search\",\"x\":" LONG "}]," REST, 20, "tools");
    expect("{\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"x\":[" MANY "]}]," REST, 20,
           "tools");
}

TEST(responses_limits, tools_of_items_count_where_they_are_told)
{
#define ITEM(tools) "{\"type\":\"additional_tools\",\"tools\":[" tools "]}"
#define TEXT "{\"role\":\"user\",\"content\":\"x\"}"

    expect("{\"input\":[" ITEM(FUNCTION "}") "," TEXT "]}", 20, "");
    expect("{\"input\":[" ITEM(FUNCTION "}") "," ITEM(FUNCTION "}") "," TEXT "]}", 20, "tools");
    expect("{\"input\":[" TEXT "," ITEM(FUNCTION "}") "," ITEM(FUNCTION "}") "," TEXT "]}", 20, "");
    expect("{\"input\":[" TEXT "," ITEM(FUNCTION ",\"x\":[" MANY "]}") "]}", 20, "tools");
}

TEST(responses_limits, ids)
{
    struct err e = {0};
    char id[RESPONSE_ID_MAX + 1];

    memset(id, 'x', sizeof(id));
    cr_expect_eq(responses_check_id("input[3].id", str_of(id, RESPONSE_ID_MAX), &e), 0);
    cr_expect_eq(responses_check_id("input[3].id", str_of(id, sizeof(id)), &e), -1);
    cr_expect_str_eq(e.param, "input[3].id");
    cr_expect_str_eq(e.text, "input[3].id has 257 bytes, but an id may have 256 at most");
}
