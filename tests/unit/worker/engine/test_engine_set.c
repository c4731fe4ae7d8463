/* Parses arguments of --engine, and the file that stores a set of them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "testing.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/engine_target.h"

static void expect_target(const char *text, const char *name, const char *kind, const char *rest)
{
    struct arena a = {0};
    struct engine_target t;
    struct err e = {0};

    cr_assert_eq(engine_target_parse(&a, text, &t, &e), 0, "%s: %s", text, e.text);
    cr_expect_str_eq(t.name, name, "%s: %s", text, t.name);
    cr_expect_str_eq(t.kind, kind, "%s: %s", text, t.kind);
    cr_expect_str_eq(t.rest, rest, "%s: %s", text, t.rest);
    arena_done(&a);
}

TEST(engine_target, names_stand_before_the_kind)
{
    expect_target("sglang:http://a:1", "sglang:http://a:1", "sglang", "http://a:1");
    expect_target("one=sglang:http://a:1", "one", "sglang", "http://a:1");
    expect_target("one.2_b-C=vllm:http://a:1,weight=2", "one.2_b-C", "vllm", "http://a:1");
    expect_target("vllm:http://a:1/x=y", "vllm:http://a:1/x=y", "vllm", "http://a:1/x=y");
    expect_target("e=builtin", "e", "builtin", "");
    expect_target("e=builtin,delay_ms=3", "e", "builtin", "");
    expect_target("e=vllm:http://a:1,name=own", "own", "vllm", "http://a:1");
    expect_target("policy=vllm:http://a:1", "policy=vllm:http://a:1", "vllm", "http://a:1");
    expect_target("builtin:script:/a=b", "builtin:script:/a=b", "builtin", "script:/a=b");
}

TEST(engine_target, names_that_are_none)
{
    static const char *const bad[] = {
        "=builtin",
        "a b=builtin",
        "a/b=builtin",
        "\xc3\xa4=builtin",
        "a,b=builtin:echo",
        "builtin:echo,name=a b",
        "builtin:echo,name=",
        "openai:http://a,model=",
        "builtin:echo,max-inflight=0",
        "vllm:http://a,dp-ranks=0",
        "vllm:http://a,dp-ranks=65536",
        "sglang:http://a,dp-ranks=2",
        "a2345678901234567890123456789012345678901234567890123456789012345=builtin"};
    struct arena a = {0};
    struct engine_target t;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cr_expect_eq(engine_target_parse(&a, bad[i], &t, &e), -1, "%s", bad[i]);
        cr_expect_eq(e.kind, ERR_CONFIG);
    }
    arena_done(&a);
}

static const char *const settings[] = {"a=builtin:echo", "vllm:http://h:1"};

static int remove_in(const char *dir, const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return unlink(path);
}

TEST(engine_set, what_is_saved_is_loaded_under_the_same_settings)
{
    char dir[] = "/tmp/rg-engine-set-XXXXXX";
    struct engine_home home = {mkdtemp(dir), settings, 2};
    struct engine_home other = {dir, settings, 1};
    struct engine_set set = {0}, got;
    struct err e = {0};
    bool told = false;
    int fd, again;

    cr_assert(home.state_dir && engine_set_stamp(dir) == 0);
    cr_assert_eq(engine_set_load(&got, &home, &told, &e), 0);
    cr_expect(got.n == 2 && got.edition == 0 && !told && got.at[1].number == 1);
    engine_set_done(&got);
    set.edition = 7;
    engine_set_add(&set, STR("b=sglang:http://h:2,weight=0.5"), 4);
    cr_assert_eq(engine_set_save(&set, &home, &e), 0, "%s", e.text);
    cr_expect_neq(engine_set_stamp(dir), 0);
    cr_assert_eq(engine_set_load(&got, &home, &told, &e), 0);
    cr_expect(got.n == 1 && got.edition == 7 && !told && got.at[0].number == 4);
    cr_expect_str_eq(got.at[0].text, "b=sglang:http://h:2,weight=0.5");
    engine_set_done(&got);
    cr_assert_eq(engine_set_load(&got, &other, &told, &e), 0);
    cr_expect(got.n == 1 && got.edition == 0 && told, "other settings are the newer word");
    engine_set_done(&got);
    fd = engine_set_lock(dir, &e);
    again = engine_set_lock(dir, &e);
    cr_expect(fd >= 0 && again == -1 && e.kind == ERR_STATE_CONFLICT);
    (void)close(fd);
    engine_set_done(&set);
    cr_expect(remove_in(dir, "engines.json") == 0 && remove_in(dir, "engines.lock") == 0 &&
              rmdir(dir) == 0);
}

/* A pool remains a pool when --engine changes. It is stored from its first start on. */
TEST(engine_set, pools_outlive_other_settings)
{
    static const char *const judged[] = {"builtin:echo", "judge=openai:http://h:1"};
    static const char *const alone[] = {"builtin:echo"};
    char dir[] = "/tmp/rg-engine-set-XXXXXX";
    struct engine_home first = {mkdtemp(dir), judged, 2}, later = {dir, alone, 1};
    struct engine_set got;
    struct err e = {0};
    bool told = false;

    cr_assert_eq(engine_set_load(&got, &first, &told, &e), 0);
    cr_assert_eq(engine_set_keep_pools(&got, &first, &e), 0, "%s", e.text);
    engine_set_done(&got);
    cr_assert_eq(engine_set_load(&got, &first, &told, &e), 0);
    cr_expect(got.n == 2 && got.edition == 0 && !told && got.kept_pools == 1);
    engine_set_done(&got);
    cr_assert_eq(engine_set_load(&got, &later, &told, &e), 0);
    cr_expect(got.n == 1 && !told && got.pools.n == 1 && strcmp(got.pools.at[0], "judge") == 0);
    cr_assert_eq(engine_set_keep_pools(&got, &later, &e), 0);
    engine_set_done(&got);
    cr_expect(remove_in(dir, "engines.json") == 0 && remove_in(dir, "engines.lock") == 0 &&
              rmdir(dir) == 0);
}

TEST(engine_set, an_own_name_is_no_other_pools)
{
    static const char *const clash[] = {"sglang:http://h:1,name=judge", "judge=openai:http://h:2"};
    static const char *const taken[] = {"sglang:http://h:1", "judge=openai:http://h:2,name=policy"};
    static const char *const fine[] = {"sglang:http://h:1,name=policy",
                                       "judge=openai:http://h:2,name=judge"};
    struct engine_set set = {0};
    struct err e = {0};

    engine_set_of(&set, clash, 2);
    cr_expect(engine_set_check(&set, &e) == -1 && strstr(e.text, "name=judge"));
    engine_set_done(&set);
    engine_set_of(&set, taken, 2);
    cr_expect(engine_set_check(&set, &e) == -1 && strstr(e.text, "name=policy"));
    engine_set_done(&set);
    engine_set_of(&set, fine, 2);
    cr_expect_eq(engine_set_check(&set, &e), 0, "%s", e.text);
    engine_set_done(&set);
}

TEST(engine_set, damaged_files_are_told)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"settings\":[\"a=builtin:echo\",\"vllm:http://h:1\"]}",
        "{\"edition\":-1,\"settings\":[\"a=builtin:echo\",\"vllm:http://h:1\"],\"engines\":[]}",
        "{\"edition\":1,\"settings\":[\"a=builtin:echo\",\"vllm:http://h:1\"],\"engines\":[{}]}",
        "{\"edition\":1,\"settings\":[\"a=builtin:echo\",\"vllm:http://"
        "h:1\"],\"engines\":[{\"place\":1}]}",
    };
    char dir[] = "/tmp/rg-engine-set-XXXXXX";
    struct engine_home home = {mkdtemp(dir), settings, 2};
    struct engine_set got;
    struct err e = {0};
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/engines.json", dir);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        FILE *f = fopen(path, "w");

        cr_assert(f && fputs(bad[i], f) >= 0 && fclose(f) == 0);
        cr_expect_eq(engine_set_load(&got, &home, NULL, &e), -1, "%s", bad[i]);
        cr_expect(e.kind == ERR_CONFIG && got.n == 0, "%s", bad[i]);
    }
    cr_expect(unlink(path) == 0 && rmdir(dir) == 0);
}

TEST(engine_set, names_are_held_against_each_other)
{
    static const char *const twice[] = {"a=builtin:echo", "b=builtin:echo", "a=vllm:http://x"};
    static const char *const none[] = {"none"};
    struct engine_set set = {0};
    struct err e = {0};

    engine_set_of(&set, twice, 2);
    cr_expect_eq(engine_set_check(&set, &e), 0);
    engine_set_add(&set, STR("a=vllm:http://x"), 2);
    cr_expect_eq(engine_set_check(&set, &e), -1);
    cr_expect_neq(str_find(str_cstr(e.text), STR("\"a\""), 0), SIZE_MAX);
    engine_set_done(&set);
    engine_set_of(&set, none, 1);
    cr_expect_eq(set.n, 0);
    engine_set_done(&set);
}

/* Checks the pool of each engine of the set, separated by blanks; "-" is the policy's. */
static void expect_pools(const struct engine_set *s, const char *want)
{
    struct arena a = {0};
    struct buf got = {0};

    for (size_t i = 0; i < s->n; i++) {
        const char *pool = engine_set_pool_of(s, &a, s->at[i].text);

        buf_printf(&got, "%s%s", i ? " " : "", pool ? pool : "-");
    }
    cr_expect(str_eq_c(buf_str(&got), want), "%.*s, not %s", (int)got.len, got.p, want);
    buf_done(&got);
    arena_done(&a);
}

TEST(engine_set, names_are_pools_beside_engines_without)
{
    static const char *const names[] = {"a=builtin:echo", "b=builtin:echo"};
    static const char *const mixed[] = {"vllm:http://h:1", "judge=openai:http://h:2",
                                        "policy=sglang:http://h:3", "judge=openai:http://h:4"};
    struct engine_set now = {0}, next = {0}, part;
    struct arena a = {0};
    struct err e = {0};

    engine_set_of(&now, names, 2);
    expect_pools(&now, "- -");
    cr_expect_str_eq(engine_set_name(&now, &a, names[0]), "a");
    engine_set_of(&next, names, 2);
    engine_set_add(&next, STR("builtin:random:1"), 2);
    cr_expect_eq(engine_set_follow(&next, &now, &e), -1, "a would change its pool");
    cr_expect_eq(e.kind, ERR_CONFIG);
    engine_set_done(&next);
    engine_set_done(&now);

    engine_set_of(&now, mixed, 4);
    cr_expect_eq(engine_set_check(&now, &e), 0, "%s", e.text);
    expect_pools(&now, "- judge - judge");
    cr_expect_str_eq(engine_set_name(&now, &a, mixed[1]), mixed[1], "two of one name");
    engine_set_part(&now, "judge", &part);
    cr_expect(part.n == 2 && part.at[0].number == 1 && part.at[1].number == 3);
    engine_set_done(&part);
    engine_set_part(&now, NULL, &part);
    cr_expect(part.n == 2 && part.at[0].number == 0 && part.at[1].number == 2);
    engine_set_done(&part);

    /* A former pool remains a pool. */
    engine_set_add(&next, STR("judge=openai:http://h:2"), 1);
    cr_expect_eq(engine_set_follow(&next, &now, &e), 0, "%s", e.text);
    expect_pools(&next, "judge");
    cr_expect_str_eq(engine_set_name(&next, &a, mixed[1]), "judge", "alone of its name");
    engine_set_done(&next);
    engine_set_done(&now);
    arena_done(&a);
}

TEST(engine_set, pools_outlive_their_engines)
{
    static const char *const mixed[] = {"vllm:http://h:1", "judge=openai:http://h:2"};
    char dir[] = "/tmp/rg-engine-set-XXXXXX";
    struct engine_home home = {mkdtemp(dir), mixed, 2};
    struct engine_set now = {0}, next = {.edition = 1}, got;
    struct err e = {0};

    engine_set_of(&now, mixed, 2);
    engine_set_add(&next, STR("vllm:http://h:1"), 0);
    cr_assert_eq(engine_set_follow(&next, &now, &e), 0);
    cr_assert_eq(engine_set_save(&next, &home, &e), 0, "%s", e.text);
    cr_assert_eq(engine_set_load(&got, &home, NULL, &e), 0, "%s", e.text);
    cr_expect(got.n == 1 && got.pools.n == 1);
    cr_expect_str_eq(got.pools.at[0], "judge");
    engine_set_done(&got);
    engine_set_done(&next);
    engine_set_done(&now);
    cr_expect(remove_in(dir, "engines.json") == 0 && rmdir(dir) == 0);
}

TEST(engine_set, options_that_mean_nothing_in_a_pool)
{
    static const char *const bad[] = {"judge=openai:http://h:2,token-ids=vllm",
                                      "judge=vllm:http://h:2,priority=on",
                                      "judge=vllm:http://h:2,dp-ranks=2",
                                      "judge=sglang:http://h:2,logprobs=raw",
                                      "judge=builtin:echo,model=x",
                                      "vllm:http://h:2,model=x"};
    struct engine_set s = {0};
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *const all[] = {"builtin:echo", bad[i]};

        engine_set_of(&s, all, 2);
        cr_expect_eq(engine_set_check(&s, &e), -1, "%s", bad[i]);
        engine_set_done(&s);
    }
}
