#include "common/base/nearest.h"

#include "common/base/attrs.h"
#include "testing.h"

static const char *among(const char *given)
{
    static const char *const names[] = {"format",      "select",     "timeout_s", "reward_info",
                                        "temperature", "top_p",      "labels",    "state-dir",
                                        "run-dir",     "max_tokens", "weight",    "metadata"};
    struct nearest n = nearest_to(str_cstr(given));

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        nearest_offer(&n, names[i]);
    return n.name;
}

TEST(nearest, slips_are_understood)
{
    static const char *const cases[][2] = {
        {"formt", "format"},         {"fromat", "format"},          {"timeout", "timeout_s"},
        {"reward", "reward_info"},   {"temprature", "temperature"}, {"label", "labels"},
        {"State_Dir", "state-dir"},  {"weigth", "weight"},          {"topp", "top_p"},
        {"maxtokens", "max_tokens"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_str_eq(among(cases[i][0]), cases[i][1], "%s", cases[i][0]);
}

TEST(nearest, other_words_are_not)
{
    static const char *const cases[] = {"",
                                        "x",
                                        "session_id",
                                        "agent",
                                        "uid",
                                        "me",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_null(among(cases[i]), "%s", cases[i]);
}
