#include "worker/session/forest.h"

#include <stdio.h>

#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"

static const struct json *said(struct arena *a, unsigned i)
{
    const struct json *v;
    char text[64];
    struct err e;

    (void)snprintf(text, sizeof(text), "{\"role\":\"user\",\"content\":\"message %u\"}", i);
    cr_assert_eq(json_parse(a, arena_str(a, str_cstr(text)), &v, &e), 0, "%s", e.text);
    return v;
}

/* By name and by identity, at every size that its table of buckets has on the way. */
TEST(forest, finds_each_of_its_messages_at_every_size)
{
    enum { MESSAGES = 3000, PARENTS = 3 };
    static struct message_node *made[MESSAGES];
    struct forest f;
    struct prompt_env *env;
    struct message_node *parents[PARENTS];

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0});
    for (unsigned i = 0; i < PARENTS; i++) {
        struct arena a = {0};

        parents[i] = forest_child(&f, &env->root, said(&a, i));
        arena_done(&a);
    }
    for (unsigned n = 0; n < MESSAGES; n++) {
        struct arena a = {0};

        made[n] = forest_child(&f, parents[n % PARENTS], said(&a, n));
        cr_assert_eq(f.nodes.n, PARENTS + n + 1, "message %u is new", n);
        for (unsigned i = n % 7; i <= n; i += 1 + n / 8) {
            struct message m;

            message_read(&m, said(&a, i), &f.matcher, &a);
            cr_assert_eq(forest_find_child(&f, parents[i % PARENTS], &m), made[i],
                         "message %u of %u", i, n + 1);
            cr_assert_eq(forest_find_child(&f, parents[(i + 1) % PARENTS], &m), NULL);
        }
        arena_done(&a);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct arena a = {0};

        cr_assert_eq(forest_child(&f, parents[i % PARENTS], said(&a, i)), made[i]);
        arena_done(&a);
    }
    cr_assert_eq(f.nodes.n, PARENTS + MESSAGES);
    forest_done(&f);
}

/* n environments, each with the tools of the others but for the last one; each is made, then asked
 * for with its members in another order. */
static struct cost cost_of_envs(const void *ctx, uint32_t n)
{
    enum { TOOLS = 60, TEXT = 32 };
    struct cost ret = {0};
    struct forest f;

    (void)ctx;
    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    for (uint32_t i = 0; i < 2 * n; i++) {
        char text[TOOLS * TEXT];
        struct arena a = {0};
        struct env_key key = {0};
        struct prompt_env *g;
        size_t len = 0;
        double before;
        struct err e;

        for (uint32_t k = 0; k < TOOLS; k++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s{%s\"a\":\"%u\"%s}",
                                    k ? "," : "[", i < n ? "\"n\":1," : "",
                                    k + 1 < TOOLS ? k : 1000 + i % n, i < n ? "" : ",\"n\":1.0");
        (void)snprintf(text + len, sizeof(text) - len, "]");
        cr_assert_eq(json_parse(&a, str_cstr(text), &key.tools, &e), 0, "%s", e.text);
        before = cost_now_s();
        g = forest_env(&f, &key);
        if (i < n) {
            cr_assert_eq(g, NULL);
            g = forest_env_add(&f, &key);
        }
        ret.seconds += cost_now_s() - before;
        cr_assert(g && g->id == i % n, "environment %u", i);
        arena_done(&a);
    }
    forest_done(&f);
    return ret;
}

TEST(forest, an_environment_is_found_without_comparing_all)
{
    expect_linear("environments", cost_of_envs, NULL, 60);
}
