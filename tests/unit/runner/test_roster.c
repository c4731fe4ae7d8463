#include "testing.h"

#include "runner/roster.h"

/* Returns the arguments for an input, joined by '|', or the error. */
static char *arguments(const char *words, const char *input)
{
    struct buf file = {0}, mistakes = {0}, out = {0};
    struct roster roster;
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e;
    char **argv;

    buf_printf(&file, "runners: {r: {run: [prog, %s]}}", words);
    cr_assert(roster_read(buf_str(&file), "f", &roster, &mistakes) == 0, "%.*s", (int)mistakes.len,
              mistakes.p);
    cr_assert(json_parse(&a, str_cstr(input), &v, &e) == 0);
    if (roster_arguments(&a, roster.at[0].run, v, &argv, &e))
        buf_puts(&out, e.text);
    else
        for (char **word = argv; *word; word++)
            buf_printf(&out, "%s%s", word == argv ? "" : "|", *word);
    roster_done(&roster);
    arena_done(&a);
    buf_done(&file);
    buf_done(&mistakes);
    return buf_take(&out);
}

static void expect(const char *words, const char *input, const char *want)
{
    char *got = arguments(words, input);

    cr_expect(strcmp(got, want) == 0, "%s for %s: %s, not %s", words, input, got, want);
    free(got);
}

TEST(roster, places_of_the_input)
{
    expect("a, '{input.x}', b", "{\"x\": \"v w\"}", "prog|a|v w|b");
    expect("'{input.x.y}'", "{\"x\": {\"y\": 1.50}}", "prog|1.50");
    expect("'{input.x.1}'", "{\"x\": [1, true]}", "prog|true");
    expect("'{input}'", "{\"x\": [1, null]}", "prog|{\"x\":[1,null]}");
    expect("'{input.x}'", "{\"x\": \"\"}", "prog|");
    expect("'{input.x}'", "{\"x\": null}", "the task's input has no value for {input.x}");
    expect("'{input.x.2}'", "{\"x\": [1, 2]}", "the task's input has no value for {input.x.2}");
    expect("'{input.x}'", "7", "the task's input has no value for {input.x}");
    expect("'{input.x}'", "{\"x\": \"a\\u0000b\"}", "{input.x} holds a NUL, which no argument can");
    expect("'{output.x}', '$HOME'", "{}", "prog|{output.x}|$HOME");
}

TEST(roster, values_and_defaults)
{
    static const struct str text = STR_LIT("runners:\n"
                                           "  a: {run: [x], slots: 3, start_rate: 30/m, grace: 0}\n"
                                           "  b: {http: 'http://h:1/run', timeout: 90s}\n");
    struct buf mistakes = {0};
    struct roster r;

    cr_assert(roster_read(text, "f", &r, &mistakes) == 0);
    cr_assert(r.n == 2 && strcmp(r.at[0].name, "a") == 0 && roster_find(&r, STR("b")) == &r.at[1]);
    cr_expect(r.at[0].slots == 3 && r.at[0].start_rate == 0.5 && r.at[0].grace_ms == 0);
    cr_expect(r.at[0].timeout_ms == 3600000 && r.at[0].score_timeout_ms == 600000);
    cr_expect(r.at[1].slots == 1 && r.at[1].start_rate == 0 && r.at[1].timeout_ms == 90000);
    cr_expect(r.at[1].grace_ms == 20000 && !r.at[1].run && !r.at[1].cancel);
    cr_expect(!roster_find(&r, STR("c")));
    roster_done(&r);
}
