/*
 * The law of turn boundaries for random conversations. If the model's ids are the canonical ones
 * and the template does not rewrite, checkpoint ids - trim + suffix ids =
 * encode(render(everything)). A template that rewrites is reported.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/vec.h"
#include "file_text.h"
#include "talk.h"
#include "testing.h"
#include "worker/text/model/model_internal.h"
#include "worker/text/request/chat.h"

struct tally {
    unsigned equal, rewrites, spurious, refused, wrong;
};

static bool starts(const struct token_vec *v, const struct token_vec *head)
{
    return v->n >= head->n &&
           (head->n == 0 || memcmp(v->at, head->at, head->n * sizeof(*v->at)) == 0);
}

static bool is_stop(const struct model *m, int32_t id)
{
    const struct model_info *i = model_info(m);

    for (size_t k = 0; k < i->n_stop_ids; k++) {
        if (i->stop_ids[k] == id)
            return true;
    }
    return false;
}

static struct chat slice(const struct chat *all, struct json *list, size_t n)
{
    struct chat c = *all;

    *list = *all->messages;
    list->n = (uint32_t)n;
    c.messages = list;
    return c;
}

/* Reports whether the ids end with the text. These tokenizers are byte-level: a text without
 * special tokens has as many ids as bytes. */
static bool ends_with(const struct model *m, const struct token_vec *ids, struct str text)
{
    struct buf b = {0};
    bool ret;

    tokenizer_decode(model_tokenizer(m), ids->at + ids->n - text.len, text.len, false, &b);
    ret = str_eq(buf_str(&b), text);
    buf_done(&b);
    return ret;
}

/* Makes the checkpoint of a turn that the model wrote canonically: ids up to its stop token. If the
 * template writes no stop token there, the ids end with the token that opens the next turn, or the
 * turn was cut. Returns false if the template does not extend its own prompt here. */
static bool checkpoint(const struct model *m, struct model_scratch *s, const struct chat *all,
                       size_t covered, const struct token_vec *whole, struct token_vec *ids,
                       bool *cut)
{
    struct token_vec prompt = {0};
    struct json list;
    struct chat before = slice(all, &list, covered - 1);
    struct str close = m->boundaries.close;
    size_t end = 0;
    int32_t next;
    bool ok;

    ok = model_prompt(m, s, &before, &prompt, NULL) == 0;
    before = slice(all, &list, covered);
    ok = ok && model_canonical(m, s, &before, ids, NULL) == 0 && starts(ids, &prompt);
    for (size_t i = prompt.n; ok && i < ids->n; i++) {
        if (is_stop(m, ids->at[i]))
            end = i + 1;
    }
    *cut = false;
    if (ok && end)
        ids->n = end;
    else if (ok && ids->n < whole->n && is_stop(m, next = whole->at[ids->n]))
        *vec_push(ids) = next;
    else
        *cut = true;
    /* No stop token: the model did not write the template's close. */
    if (*cut && ok && ids->n >= prompt.n + close.len)
        ids->n -= ends_with(m, ids, close) ? close.len : 0;
    vec_done(&prompt);
    return ok;
}

static void show(const struct model *m, const char *label, const struct token_vec *ids)
{
    struct buf b = {0};

    tokenizer_decode(model_tokenizer(m), ids->at, ids->n, false, &b);
    (void)fprintf(stderr, "%s: %.*s\n", label, (int)b.len, b.p ? b.p : "");
    buf_done(&b);
}

static void compare(const struct model *m, const struct model_suffix *x,
                    const struct token_vec *whole, struct token_vec *ids, struct tally *t)
{
    ids->n -= x->trim;
    for (size_t i = 0; i < x->ids.n; i++)
        *vec_push(ids) = x->ids.at[i];
    if (whole->n == ids->n && starts(whole, ids)) {
        *(x->rewrites ? &t->spurious : &t->equal) += 1;
        return;
    }
    *(x->rewrites ? &t->rewrites : &t->wrong) += 1;
    if (!x->rewrites && t->wrong == 1) {
        show(m, "WANT", whole);
        show(m, "GOT ", ids);
    }
}

static void one(const struct model *m, struct model_scratch *s, const struct chat *all,
                size_t covered, struct tally *t)
{
    struct token_vec ids = {0}, whole = {0};
    struct model_suffix x = {0};
    struct model_tail tail = {0};
    struct err e;

    if (model_prompt(m, s, all, &whole, NULL) != 0 ||
        !checkpoint(m, s, all, covered, &whole, &ids, &tail.cut)) {
        t->refused++;
    } else {
        tail.last = (struct token_span){ids.at, ids.n};
        if (model_suffix(m, s, all, covered, &tail, &x, &e) == 0) {
            cr_assert_leq(x.close, x.ids.n);
            compare(m, &x, &whole, &ids, t);
        } else { /* templates that show no answers: such calls render everything */
            cr_assert_eq(e.kind, ERR_UNSUPPORTED, "%s", e.text);
            t->refused++;
        }
    }
    vec_done(&x.ids);
    vec_done(&ids);
    vec_done(&whole);
}

/* Runs conversations. The second half uses a scratch that keeps renderings, as workers do. */
static struct tally talk_with(const struct model *m, unsigned n, uint64_t seed)
{
    struct model_scratch *s = model_scratch_new(m);
    struct talk_random r = {seed};
    struct tally t = {0};

    for (unsigned i = 0; i < n; i++) {
        struct talk_options o = {.tools = i % 2,
                                 .thoughts = i % 4 > 1,
                                 .late_system = i % 8 > 3,
                                 .call_thoughts_only = i % 16 > 11};
        struct arena a = {0};
        struct chat chat = {0};
        size_t covered;

        if (i == n / 2)
            model_scratch_remember(s);
        chat.messages = talk_make(&r, &a, &o, &covered);
        chat.tools = o.tools ? talk_tools(&a) : NULL;
        one(m, s, &chat, covered, &t);
        arena_done(&a);
    }
    model_scratch_free(s);
    return t;
}

TEST(suffix, builtin_equals_full_render)
{
    struct model_options o = {0};
    struct model *m;
    struct tally t;

    cr_assert_eq(model_load(&o, &m, NULL), 0);
    t = talk_with(m, 2000, 7);
    cr_assert_eq(t.equal, 2000, "equal %u rewrites %u spurious %u refused %u wrong %u", t.equal,
                 t.rewrites, t.spurious, t.refused, t.wrong);
    model_free(m);
}

static void one_template(const char *name, const struct json *specials, struct tally *sum)
{
    struct model_options o = {0};
    struct arena a = {0};
    char path[512];
    struct model *m;
    struct tally t;
    struct err e;

    (void)snprintf(path, sizeof(path), "%s/data/templates/%s.jinja", RG_SHARED, name);
    o.dir = talk_folder(&a, file_text(&a, path), json_get(specials, name));
    cr_assert_eq(model_load(&o, &m, &e), 0, "%s: %s", name, e.text);
    t = talk_with(m, 160, 11);
    if (t.wrong) /* some templates print the time, which may have advanced */
        t = talk_with(m, 160, 11);
    cr_expect_eq(t.wrong, 0, "%s: equal %u rewrites %u spurious %u refused %u wrong %u", name,
                 t.equal, t.rewrites, t.spurious, t.refused, t.wrong);
    if (getenv("TALK_SHOW"))
        (void)fprintf(stderr, "%-45s equal %3u rewrites %3u spurious %3u refused %3u wrong %3u\n",
                      name, t.equal, t.rewrites, t.spurious, t.refused, t.wrong);
    sum->equal += t.equal;
    sum->rewrites += t.rewrites;
    sum->spurious += t.spurious;
    talk_remove(o.dir);
    model_free(m);
    arena_done(&a);
}

TEST(suffix, every_real_template_keeps_the_law)
{
    struct dirent **list = NULL;
    struct tally sum = {0};
    struct arena a = {0};
    const struct json *specials = NULL;
    struct str text = file_text(&a, RG_SHARED "/data/corpus/render.special_tokens.json");
    int n = scandir(RG_SHARED "/data/templates", &list, NULL, alphasort);

    if (n <= 0 || !text.p) {
        arena_done(&a);
        cr_skip_test("../shared/data is not there");
    }
    cr_assert_eq(json_parse(&a, text, &specials, NULL), 0);
    for (int i = 0; i < n; i++) {
        char *dot = strstr(list[i]->d_name, ".jinja");

        if (dot) {
            *dot = 0;
            one_template(list[i]->d_name, specials, &sum);
        }
        free(list[i]);
    }
    free(list);
    arena_done(&a);
    cr_assert_gt(sum.equal, 5000, "only %u comparisons", sum.equal);
}

/* Real vocabularies merge across all tokens except added ones, which the byte folders above do not.
 */
TEST(suffix, every_model_folder_keeps_the_law)
{
    struct dirent **list = NULL;
    int n = scandir(RG_SHARED "/data/models", &list, NULL, alphasort);
    unsigned equal = 0;

    if (n <= 0)
        cr_skip_test("../shared/data is not there");
    for (int i = 0; i < n; i++) {
        struct model_options o = {0};
        char path[512];
        struct model *m;
        struct tally t;
        struct err e;

        (void)snprintf(path, sizeof(path), "%s/data/models/%s", RG_SHARED, list[i]->d_name);
        o.dir = path;
        if (list[i]->d_name[0] != '.') {
            cr_assert_eq(model_load(&o, &m, &e), 0, "%s: %s", path, e.text);
            t = talk_with(m, 1000, 23);
            cr_expect_eq(t.wrong, 0, "%s: equal %u rewrites %u spurious %u refused %u wrong %u",
                         path, t.equal, t.rewrites, t.spurious, t.refused, t.wrong);
            cr_expect_gt(t.equal, 0, "%s: nothing was compared", path);
            if (getenv("TALK_SHOW"))
                (void)fprintf(stderr, "%-45s equal %4u rewrites %4u spurious %3u refused %4u\n",
                              list[i]->d_name, t.equal, t.rewrites, t.spurious, t.refused);
            model_free(m);
            equal += t.equal;
        }
        free(list[i]);
    }
    free(list);
    cr_assert_gt(equal, 4000, "only %u comparisons", equal);
}
