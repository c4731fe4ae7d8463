#include "worker/session/forest/forest.h"

#include <stdio.h>

#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/record.h"
#include "worker/text/request/chat.h"

static const struct json *said(struct arena *a, unsigned i)
{
    const struct json *v;
    char text[64];
    struct err e;

    (void)snprintf(text, sizeof(text), "{\"role\":\"user\",\"content\":\"message %u\"}", i);
    cr_assert_eq(json_parse(a, arena_str(a, str_cstr(text)), &v, &e), 0, "%s", e.text);
    return v;
}

/* Finds messages by content and by identity, at every size of its table of buckets. */
TEST(forest, finds_each_of_its_messages_at_every_size)
{
    enum { MESSAGES = 3000, PARENTS = 3 };
    static struct message_node *made[MESSAGES];
    struct forest f;
    struct prompt_env *env;
    struct message_node *parents[PARENTS];

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0}, NULL);
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

/* Measures n environments with equal tools except the last one. Each is made, and then looked up
 * with its members in a different order. */
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
            g = forest_env_add(&f, &key, NULL);
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

static void read_said(struct forest *f, struct arena *a, struct str text, struct message *ret)
{
    struct json *v = ARENA_NEW(a, struct json);

    *v = (struct json){.kind = JSON_OBJECT, .n = 2};
    v->members = arena_calloc(a, 2, sizeof(*v->members));
    v->members[0] =
        (struct json_member){json_make_string(STR("role")), json_make_string(STR("user"))};
    v->members[1] = (struct json_member){json_make_string(STR("content")), json_make_string(text)};
    message_read(ret, v, &f->matcher, a);
}

/* Texts that differ only in the middle, and one that is longer than all. Only a small share of the
 * longest one is read, compared with the cost of hashing it. */
TEST(forest, long_texts_are_told_apart_and_others_are_not_hashed)
{
    enum { LENGTH = 200000, KINDS = 20, LONG = 32 << 20 };

    static char text[LONG];
    struct message_node *made[KINDS];
    struct prompt_env *env;
    struct message m;
    struct forest f;
    double hashing = 1e9, finding = 1e9;

    memset(text, 'x', sizeof(text));
    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0}, NULL);
    for (unsigned i = 0; i < 2 * KINDS; i++) {
        struct arena a = {0};
        struct message_node *n;

        text[LENGTH / 2] = (char)('a' + i % KINDS);
        read_said(&f, &a, str_of(text, LENGTH), &m);
        cr_assert_eq(forest_find_child(&f, &env->root, &m), i < KINDS ? NULL : made[i % KINDS]);
        n = forest_child(&f, &env->root, m.json);
        made[i % KINDS] = i < KINDS ? n : made[i % KINDS];
        cr_assert_eq(n, made[i % KINDS]);
        arena_done(&a);
    }
    cr_assert_eq(f.nodes.n, KINDS);
    for (unsigned i = 0; i < 10; i++) {
        struct arena a = {0};
        double at[3];

        read_said(&f, &a, str_of(text, LONG), &m);
        at[0] = cost_now_s();
        cr_assert_eq(forest_find_child(&f, &env->root, &m), NULL);
        at[1] = cost_now_s();
        cr_assert_neq(message_hash(&m, &f.matcher), 0);
        at[2] = cost_now_s();
        finding = at[1] - at[0] < finding ? at[1] - at[0] : finding;
        hashing = at[2] - at[1] < hashing ? at[2] - at[1] : hashing;
        arena_done(&a);
    }
    cr_expect_lt(finding, hashing / 4, "%.3f ms, hashing %.3f", finding * 1e3, hashing * 1e3);
    forest_done(&f);
}

/* Makes tools of n numbers, the last of which is `last`. */
static void long_tools(struct arena *a, uint32_t n, const char *last, struct env_key *ret)
{
    struct buf text = {0};
    struct err e;

    buf_puts(&text, "[{\"enum\":[");
    for (uint32_t i = 1; i < n; i++)
        buf_puts(&text, "1,");
    buf_printf(&text, "%s]}]", last);
    *ret = (struct env_key){0};
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&text)), &ret->tools, &e), 0, "%s", e.text);
    buf_done(&text);
}

TEST(forest, long_tools_are_the_same_when_their_text_is)
{
    enum { SHORT = 1000, LONG = 100000 };

    for (uint32_t n = SHORT; n <= LONG; n += LONG - SHORT) {
        struct arena a = {0};
        struct forest f;
        struct prompt_env *env;
        struct env_key key;

        forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
        long_tools(&a, n, "1", &key);
        env = forest_env_add(&f, &key, NULL);
        for (int hashed = 0; hashed < 2; hashed++) {
            struct env_key same, other, spelled;

            long_tools(&a, n, "1", &same);
            long_tools(&a, n, "2", &other);
            long_tools(&a, n, "1.0", &spelled);
            same.hash = hashed ? env->hash : 0;
            cr_expect_eq(forest_env(&f, &same), env, "%u numbers", n);
            cr_expect_eq(forest_env(&f, &other), NULL, "%u numbers", n);
            cr_expect_eq(forest_env(&f, &spelled), n == SHORT ? env : NULL, "%u numbers", n);
        }
        arena_done(&a);
        forest_done(&f);
    }
}

/* A prepared key of long tools saves work on the loop: equal and different tools are distinguished
 * at almost no cost. */
TEST(forest, long_tools_that_were_looked_at_are_not_looked_at_again)
{
    enum { NUMBERS = 1 << 20 };
    struct arena a = {0};
    struct forest f;
    struct prompt_env *env;
    struct env_key same, other;
    double looking = 1e9, finding = 1e9;

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    long_tools(&a, NUMBERS, "1", &same);
    long_tools(&a, NUMBERS, "2", &other);
    env = forest_env_add(&f, &same, NULL);
    for (int i = 0; i < 10; i++) {
        double at[3];

        same.hash = other.hash = 0;
        other.tools_hashed = true;
        at[0] = cost_now_s();
        long_tools_hash(other.tools, other.tools_hash);
        at[1] = cost_now_s();
        cr_expect_eq(forest_env(&f, &same), env);
        cr_expect_eq(forest_env(&f, &other), NULL);
        at[2] = cost_now_s();
        looking = at[1] - at[0] < looking ? at[1] - at[0] : looking;
        finding = at[2] - at[1] < finding ? at[2] - at[1] : finding;
    }
    cr_expect_lt(finding, looking / 20, "%.3f ms, looking %.3f", finding * 1e3, looking * 1e3);
    arena_done(&a);
    forest_done(&f);
}

static const struct json *called(struct arena *a, uint32_t i, const char *id)
{
    const struct json *v;
    char text[256];
    struct err e;

    (void)snprintf(text, sizeof(text),
                   "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"%s\","
                   "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                   "\"{\\\"n\\\":%u}\"}}]}",
                   id, i);
    cr_assert_eq(json_parse(a, arena_str(a, str_cstr(text)), &v, &e), 0, "%s", e.text);
    return v;
}

/* Returns the least time in seconds of ten searches that find no echoed answer. */
static double cost_of_none(struct forest *f, struct message_node *parent, const struct message *m)
{
    double best = 1e9;

    for (int i = 0; i < 10; i++) {
        double before = cost_now_s();

        cr_expect_null(forest_find_echo(f, parent, m));
        best = MIN_OF(best, cost_now_s() - before);
    }
    return best;
}

/* Returns the time to find that a call with an unknown id is none of n answers, which all call the
 * same tool. The newest answer, and one that is named by its id, are found. */
static double cost_of_echo(uint32_t n)
{
    struct arena a = {0};
    struct checkpoint *answers = arena_calloc(&a, n, sizeof(*answers));
    struct forest f;
    struct prompt_env *env;
    struct message m;
    double best;

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0}, NULL);
    for (uint32_t i = 0; i < n; i++) {
        struct checkpoint *t = &answers[i];
        char id[32];

        (void)snprintf(id, sizeof(id), "call_%u", i);
        t->message = called(&f.arena, i, id);
        t->node = forest_child_of_own(&f, &env->root, t->message);
        t->node->newest = t;
        forest_enter_echo(&f, t->node);
        forest_enter_call(
            &f, json_string(json_get(json_at(json_get(t->message, "tool_calls"), 0), "id")), t);
    }
    message_read(&m, called(&a, n + 1, "call_0"), &f.matcher, &a);
    cr_expect_eq(forest_find_echo(&f, &env->root, &m), answers[0].node, "named by its id");
    message_read(&m, called(&a, n + 1, "of nobody"), &f.matcher, &a);
    best = cost_of_none(&f, &env->root, &m);
    arena_done(&a);
    forest_done(&f);
    return best;
}

TEST(forest, of_many_answers_that_call_one_tool_few_are_looked_at)
{
    double few = cost_of_echo(500), many = cost_of_echo(20000);

    cr_expect_lt(many, 8 * few, "%.3f ms of 500, %.3f of 20,000", few * 1e3, many * 1e3);
}

/* An id that is longer than all issued ones is not looked up. */
TEST(forest, ids_longer_than_issued_ones_are_not_looked_up)
{
    struct forest f;
    struct checkpoint t = {0};

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    cr_expect_null(forest_issuer(&f, str_of("call_1", SIZE_MAX / 2)), "it would read beyond it");
    forest_enter_call(&f, STR("call_1"), &t);
    cr_expect_eq(forest_issuer(&f, STR("call_1")), &t);
    cr_expect_null(forest_issuer(&f, STR("call_2")));
    cr_expect_null(forest_issuer(&f, STR("")));
    cr_expect_null(forest_issuer(&f, str_of("call_1", SIZE_MAX / 2)));
    forest_done(&f);
}

static struct message_node *find_said(struct forest *f, struct message_node *parent,
                                      const char *text, struct arena *a)
{
    const struct json *v;
    struct message m;
    struct err e;
    struct str s = arena_printf(a, "{\"role\":\"assistant\",\"content\":\"%s\"}", text);

    cr_assert_eq(json_parse(a, s, &v, &e), 0, "%s", e.text);
    message_read(&m, v, &f->matcher, a);
    return forest_find_echo(f, parent, &m);
}

/* Checks what an answer's text and stop string have after them; NULL: no answer is found. */
static void expect_begun(struct forest *f, const struct message_node *parent, const char *text,
                         const char *added, struct arena *a)
{
    struct str s = arena_printf(a, "{\"role\":\"assistant\",\"content\":\"%s\"}", text), got;
    const struct json *v;
    struct message m;
    struct err e;

    cr_assert_eq(json_parse(a, s, &v, &e), 0, "%s", e.text);
    message_read(&m, v, &f->matcher, a);
    if (forest_find_begun(f, parent, &m, &got))
        cr_expect(added && str_eq_c(got, added), "%s: %.*s", text, (int)got.len, got.p);
    else
        cr_expect_null(added, "%s", text);
}

/* An answer with the stop string that ended its node's newest sample is that answer. */
TEST(forest, an_answer_is_found_by_its_text_and_stop_string)
{
    struct arena a = {0};
    struct forest f;
    struct prompt_env *env;
    struct checkpoint first = {0}, second = {0};
    struct buf told = {0};
    struct err e;

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0}, NULL);
    for (int i = 0; i < 3; i++)
        record_put_u(&told, 0);
    record_put_str(&told, STR("\nEND:"));
    first.told = buf_str(&told);
    cr_expect_null(checkpoint_stop(&first).p, "an answer without ids cannot have it in them");
    first.n = 1;
    cr_assert_eq(
        json_parse(&a, STR("{\"role\":\"assistant\",\"content\":\"go \"}"), &first.message, &e), 0,
        "%s", e.text);
    first.node = forest_child(&f, &env->root, first.message);
    first.node->newest = &first;
    forest_enter_echo(&f, first.node);
    cr_expect_null(find_said(&f, &env->root, "go END:", &a), "no stop string is noted yet");
    forest_note_stop(&f, &first);
    forest_note_stop(&f, &first);
    cr_expect_eq(f.stops.n, 1);
    cr_expect_eq(find_said(&f, &env->root, "go \\nEND:", &a), first.node);
    cr_expect_eq(find_said(&f, &env->root, "goEND: ", &a), first.node);
    cr_expect_eq(find_said(&f, &env->root, "go", &a), first.node);
    cr_expect_null(find_said(&f, &env->root, "went END:", &a));
    cr_expect_null(find_said(&f, &env->root, "go END: more", &a));
    cr_expect_null(find_said(&f, first.node, "go END:", &a));
    expect_begun(&f, &env->root, " go \\nEND: more", " more", &a);
    expect_begun(&f, &env->root, "go \\nEND: END:", " END:", &a);
    expect_begun(&f, &env->root, "go \\nEND:", NULL, &a);
    expect_begun(&f, &env->root, "go END: more", NULL, &a);
    expect_begun(&f, &env->root, "go more \\nEND: more", NULL, &a);
    expect_begun(&f, first.node, "go \\nEND: more", NULL, &a);
    second = first;
    second.told = (struct str){0};
    second.older = &first;
    first.node->newest = &second;
    cr_expect_null(find_said(&f, &env->root, "go END:", &a), "the newest has no stop string");
    buf_done(&told);
    arena_done(&a);
    forest_done(&f);
}

/* Makes a message as a client sends it back. */
static const struct json *spoken(struct arena *a, struct str text, const char *arguments)
{
    const struct json *v;
    struct buf b = {0};
    struct err e;

    buf_printf(&b,
               "{\"role\":\"assistant\",\"content\":\"%.*s\",\"tool_calls\":[{\"id\":\"call_0\","
               "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}]}",
               (int)text.len, text.p, arguments);
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&b)), &v, &e), 0, "%s", e.text);
    buf_done(&b);
    return v;
}

/* Returns the time to find that a message with other arguments is no echo of n answers at one node.
 * All have the same id, and texts that differ from the message's only in the last byte. */
static double cost_of_text_beside(uint32_t n)
{
    enum { LONG = 200000 };
    struct arena a = {0};
    struct checkpoint *answers = arena_calloc(&a, n, sizeof(*answers));
    char *text = arena_alloc(&a, LONG);
    struct forest f;
    struct prompt_env *env;
    struct message m;
    struct message_node *node = NULL;
    double best;

    forest_init(&f, (struct matcher){.kind = MATCHER_CANONICAL});
    env = forest_env_add(&f, &(struct env_key){0}, NULL);
    memset(text, 'x', LONG);
    for (uint32_t i = 0; i < n; i++) {
        answers[i].message = node ? node->msg.json : spoken(&f.arena, str_of(text, LONG), "{}");
        node = forest_child_of_own(&f, &env->root, answers[i].message);
        answers[i].node = node;
        answers[i].older = node->newest;
        node->newest = &answers[i];
        forest_enter_echo(&f, node);
    }
    forest_enter_call(&f, STR("call_0"), &answers[n - 1]);
    message_read(&m, spoken(&a, str_of(text, LONG), "{1}"), &f.matcher, &a);
    cr_expect_eq(forest_find_echo(&f, &env->root, &m), node, "named by its id");
    text[LONG - 1] = 'y';
    message_read(&m, spoken(&a, str_of(text, LONG), "{1}"), &f.matcher, &a);
    best = cost_of_none(&f, &env->root, &m);
    arena_done(&a);
    forest_done(&f);
    return best;
}

TEST(forest, a_text_beside_calls_is_compared_once_for_all_answers_of_a_node)
{
    double few = cost_of_text_beside(1), many = cost_of_text_beside(500);

    cr_expect_lt(many, 20 * few, "%.3f ms of 1, %.3f of 500", few * 1e3, many * 1e3);
}
