/*
 * Placeholders for earlier messages and tools never appear in a result. Small templates have the
 * forms that once let them through. Also: reports on templates that show text in lists of content
 * parts only.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/vec.h"
#include "talk.h"
#include "testing.h"
#include "worker/text/model/standin.h"
#include "worker/text/model/suffix_text.h"
#include "worker/text/request/chat.h"

struct kit {
    struct arena a;
    const char *dir;
    struct model *m;
    struct model_scratch *s;
};

static const struct json *parse(struct kit *k, const char *text)
{
    const struct json *ret = NULL;
    struct err e;

    cr_assert_eq(json_parse(&k->a, str_cstr(text), &ret, &e), 0, "%s", e.text);
    return ret;
}

static struct kit kit_of(const char *template_text)
{
    struct kit k = {0};
    struct model_options o = {0};
    struct err e;

    k.dir = o.dir =
        talk_folder(&k.a, str_cstr(template_text), parse(&k, "{\"eos_token\": \"<|im_end|>\"}"));
    cr_assert_eq(model_load(&o, &k.m, &e), 0, "%s", e.text);
    k.s = model_scratch_new(k.m);
    return k;
}

/* A template that opens answers as ChatML does. */
#define KIT_WITH(loop) \
    kit_of(loop "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

static void kit_done(struct kit *k)
{
    model_scratch_free(k->s);
    model_free(k->m);
    talk_remove(k->dir);
    arena_done(&k->a);
}

static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"ls\", \"parameters\": {}}}]";

/* Returns the text after the covered messages. Checks that the whole chat ends with it. */
static struct str behind(struct kit *k, const char *messages, size_t covered, const char *tools)
{
    struct chat chat = {.messages = parse(k, messages), .tools = tools ? parse(k, tools) : NULL};
    struct token_vec whole = {0};
    struct suffix_turn turn = {.stop = &k->m->stops[0]};
    struct suffix_text x;
    struct buf text = {0};
    struct str all, ret;
    struct err e;

    cr_assert_eq(suffix_text(k->s, &chat, covered, turn, &x, &e), 0, "%s", e.text);
    ret = arena_str(&k->a, suffix_join(&k->s->arena, x.close, x.next));
    cr_assert_eq(model_prompt(k->m, k->s, &chat, &whole, &e), 0, "%s", e.text);
    tokenizer_decode(model_tokenizer(k->m), whole.at, whole.n, false, &text);
    all = buf_str(&text);
    cr_assert(str_ends(all, ret), "behind: %.*s\nwhole: %.*s", (int)ret.len, ret.p, (int)all.len,
              all.p);
    cr_assert_not(standin_marked(k->m, ret));
    buf_done(&text);
    vec_done(&whole);
    return ret;
}

static void expect(struct str got, const char *want)
{
    cr_assert(str_eq_c(got, want), "got: %.*s\nwant: %s", (int)got.len, got.p, want);
}

/* Checks that no trial of a model's load finds a difference or a leak. */
static void expect_trials(struct kit *k)
{
    struct model_trials t;
    struct buf first = {0};

    model_try(k->m, 99, 600, &t, &first);
    cr_assert_eq(t.differ + t.leaked, 0, "%zu differ, %zu leak: %.*s", t.differ, t.leaked,
                 (int)first.len, first.p);
    cr_assert_gt(t.same, 0);
    buf_done(&first);
}

static const char A_LATE_SYSTEM[] =
    "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"yes\"},"
    " {\"role\": \"system\", \"content\": \"now\"}, {\"role\": \"user\", \"content\": \"go\"}]";

/* A: tools are listed in every system message. */
TEST(leaks, tools_of_late_system_messages_are_the_real_ones)
{
    struct kit k = KIT_WITH("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content "
                            "}}{% if m.role == 'system' and tools %} TOOLS:{% for t in tools %} "
                            "{{ t.function.name }}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}"
                            "{% endfor %}");

    expect(behind(&k, A_LATE_SYSTEM, 2, TOOLS),
           "\n<|im_start|>system\nnow TOOLS: ls<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n"
           "<|im_start|>assistant\n");
    expect_trials(&k);
    kit_done(&k);
}

/* B: the system text goes into the last user message, but only when tools are given. */
TEST(leaks, a_system_text_in_the_last_user_message_is_the_real_one)
{
    struct kit k =
        KIT_WITH("{% for m in messages %}{% if m.role == 'system' %}{% else %}"
                 "{{ '<|im_start|>' + m.role + '\\n' }}{% if loop.last and m.role == 'user' and "
                 "tools and messages[0].role == 'system' %}{{ messages[0].content + ': ' }}"
                 "{% endif %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}");
    static const char chat[] =
        "[{\"role\": \"system\", \"content\": \"be kind\"}, {\"role\": \"user\", \"content\": "
        "\"hi\"}, {\"role\": \"assistant\", \"content\": \"yes\"}, {\"role\": \"user\", "
        "\"content\": \"go\"}]";

    expect(behind(&k, chat, 3, TOOLS),
           "\n<|im_start|>user\nbe kind: go<|im_end|>\n<|im_start|>assistant\n");
    expect(behind(&k, chat, 3, NULL), "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n");
    expect_trials(&k);
    kit_done(&k);
}

/* C: the template refuses chats without tools. The close of the turn is complete. */
TEST(leaks, the_close_of_a_template_that_insists_on_tools_is_whole)
{
    struct kit k = KIT_WITH("{% for t in tools %}{{ '<tool>' + t.function.name }}{% endfor %}"
                            "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + "
                            "m.content + '<|im_end|>\\n' }}{% endfor %}");

    cr_assert(k.m->boundaries.needs_tools);
    expect(behind(&k,
                  "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
                  "\"content\": \"yes\"}, {\"role\": \"user\", \"content\": \"go\"}]",
                  2, TOOLS),
           "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n");
    expect_trials(&k);
    kit_done(&k);
}

/* The close is also complete if the template refuses all placeholders. */
TEST(leaks, the_close_is_whole_without_any_stand_in)
{
    struct kit k = KIT_WITH("{% if messages[0].content != 'hi' %}{{ raise_exception('no') }}"
                            "{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' "
                            "+ m.content + '<|im_end|>\\n' }}{% endfor %}");

    cr_assert(model_renders_all(k.m));
    expect(behind(&k,
                  "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
                  "\"content\": \"yes\"}, {\"role\": \"user\", \"content\": \"go\"}]",
                  2, NULL),
           "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n");
    kit_done(&k);
}

/* The text after a turn depends on the history in a way that no placeholder shows. */
TEST(leaks, a_template_that_counts_calls_gets_its_history)
{
    struct kit k = KIT_WITH("{% set ns = namespace(n=0) %}{% for m in messages %}{% if "
                            "m.tool_calls %}{% set ns.n = ns.n + 1 %}{% endif %}{{ "
                            "'<|im_start|>' + m.role + '\\n' + m.content }}{% if m.role == 'user' "
                            "%} (calls so far: {{ ns.n }}){% endif %}{{ '<|im_end|>\\n' }}"
                            "{% endfor %}");

    cr_assert(model_renders_all(k.m));
    expect_trials(&k);
    kit_done(&k);
}

/* A template that accepts neither the real chat nor a clean placeholder is an error. Its mark never
 * appears. */
TEST(leaks, what_cannot_be_clean_is_refused)
{
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
        "\"yes\"}, {\"role\": \"user\", \"content\": \"go\"}]";
    struct kit k = KIT_WITH("{% if messages|length > 2 and messages[0].content == 'hi' %}{{ "
                            "raise_exception('no') }}{% endif %}{% for m in messages %}{{ "
                            "'<|im_start|>' + m.role + '\\n' + m.content }}{% if loop.last %}{{ "
                            "messages[0].content|upper }}{% endif %}{{ '<|im_end|>\\n' }}"
                            "{% endfor %}");
    struct chat c = {.messages = parse(&k, chat)};
    struct model_suffix x = {0};
    struct err e = {0};

    cr_assert_eq(model_suffix(k.m, k.s, &c, 2, &(struct model_tail){0}, &x, &e), -1);
    cr_assert_eq(e.kind, ERR_PROMPT_LEAK, "%s", e.text);
    cr_assert_eq(err_status(&e), 500);
    cr_assert_eq(x.ids.n, 0);
    kit_done(&k);
}

/* The last check: text with the mark is never a prompt. */
TEST(leaks, no_text_with_the_mark_is_encoded)
{
    struct kit k = KIT_WITH("{% for m in messages %}{{ m.content }}{% endfor %}");
    struct chat c = {0};
    struct token_vec ids = {0};
    struct json message, list = {.kind = JSON_ARRAY, .n = 1, .items = &message};
    char upper[16];
    struct err e;

    (void)snprintf(upper, sizeof(upper), "%s", k.m->mark);
    for (char *p = upper; *p; p++)
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    message = make_text(&k.a, "role", "user", "content",
                        arena_cstr(&k.a, arena_printf(&k.a, "1 2 3 rg4 %sx", upper)));
    c.messages = &list;
    cr_assert_eq(model_prompt(k.m, k.s, &c, &ids, &e), -1);
    cr_assert_eq(e.kind, ERR_PROMPT_LEAK);
    cr_assert_eq(ids.n, 0);
    vec_done(&ids);
    kit_done(&k);
}

TEST(leaks, each_load_draws_its_mark)
{
    struct kit x = KIT_WITH("{% for m in messages %}{{ m.content }}{% endfor %}");
    struct kit y = KIT_WITH("{% for m in messages %}{{ m.content }}{% endfor %}");

    cr_assert_neq(strcmp(x.m->mark, y.m->mark), 0);
    cr_assert_eq(strlen(x.m->mark), MODEL_MARK_LEN);
    kit_done(&x);
    kit_done(&y);
}

/* An audit finds what placeholders of this chat hid, and corrects it. The next turns render
 * everything. */
TEST(leaks, an_audit_mends_and_distrusts)
{
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": \"the magic word\"}, {\"role\": \"assistant\", "
        "\"content\": \"yes\"}, {\"role\": \"user\", \"content\": \"go\"}]";
    struct kit k = KIT_WITH("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content "
                            "}}{% if not loop.first and messages[0].content == 'the magic word' "
                            "%}!{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}");
    struct chat c = {.messages = parse(&k, chat)};
    struct suffix_text x;
    struct err e;

    cr_assert_not(model_renders_all(k.m));
    cr_assert_eq(suffix_text(k.s, &c, 2, (struct suffix_turn){.stop = &k.m->stops[0]}, &x, &e), 0);
    cr_assert_eq(x.audit, MODEL_AUDIT_NONE);
    expect(x.next, "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n");
    model_scratch_audit(k.s, true);
    cr_assert_eq(suffix_text(k.s, &c, 2, (struct suffix_turn){.stop = &k.m->stops[0]}, &x, &e), 0);
    cr_assert_eq(x.audit, MODEL_AUDIT_DIFFERS);
    expect(x.next, "<|im_start|>user\ngo!<|im_end|>\n<|im_start|>assistant\n");
    cr_assert_eq(suffix_text(k.s, &c, 2, (struct suffix_turn){.stop = &k.m->stops[0]}, &x, &e), 0);
    cr_assert_eq(x.audit, MODEL_AUDIT_SAME, "the next one is made of the whole chat");
    model_scratch_audit(k.s, false);
    cr_assert_eq(suffix_text(k.s, &c, 2, (struct suffix_turn){.stop = &k.m->stops[0]}, &x, &e), 0);
    expect(x.next, "<|im_start|>user\ngo!<|im_end|>\n<|im_start|>assistant\n");
    kit_done(&k);
}

/* E: every template with a variable for it keeps its thoughts. */
TEST(leaks, a_variable_that_keeps_thoughts_is_pinned)
{
    struct kit k =
        KIT_WITH("{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' "
                 "%}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
                 "{{ '<|im_start|>' + m.role + '\\n' }}{% if m.reasoning_content and "
                 "((preserve_thinking is defined and preserve_thinking) or loop.index0 > ns.last) "
                 "%}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
                 "{{ m.content + '<|im_end|>\\n' }}{% endfor %}");

    cr_assert_str_eq(k.m->pin, "preserve_thinking");
    cr_assert(k.m->pin_value);
    cr_assert(model_info(k.m)->append_only);
    expect_trials(&k);
    kit_done(&k);
}

TEST(leaks, a_variable_that_keeps_nothing_is_left_alone)
{
    struct kit k = KIT_WITH("{% if preserve_thinking %}{% endif %}{% for m in messages %}{{ "
                            "'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                            "{% endfor %}");

    cr_assert_null(k.m->pin);
    kit_done(&k);
}

/* F: text is shown in lists of content parts only. */
TEST(leaks, text_becomes_a_part_where_only_parts_are_shown)
{
    struct kit k = KIT_WITH("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% for p "
                            "in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
                            "{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}");

    cr_assert(k.m->boundaries.wraps[ROLE_USER] && k.m->boundaries.wraps[ROLE_ASSISTANT]);
    expect(behind(&k, A_LATE_SYSTEM, 2, NULL),
           "\n<|im_start|>system\nnow<|im_end|>\n<|im_start|>user\ngo<|im_end|>\n"
           "<|im_start|>assistant\n");
    expect_trials(&k);
    kit_done(&k);
}

/* F again: only the user's text needs parts. A role whose text is never shown is reported. */
TEST(leaks, each_role_has_its_own_form)
{
    struct kit k = KIT_WITH("{% for m in messages %}{% if m.role != 'system' %}{{ '<|im_start|>' + "
                            "m.role + '\\n' }}{% if m.role == 'user' %}{{ m.content[0].text }}"
                            "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}{% endif %}"
                            "{% endfor %}");
    struct buf report = {0};

    cr_assert(k.m->boundaries.wraps[ROLE_USER]);
    cr_assert_not(k.m->boundaries.wraps[ROLE_ASSISTANT]);
    cr_assert(k.m->boundaries.hides[ROLE_SYSTEM]);
    model_report(k.m, &report);
    cr_assert_neq(str_find(buf_str(&report), STR("system"), 0), SIZE_MAX);
    buf_done(&report);
    expect_trials(&k);
    kit_done(&k);
}

/* G: a classifier's prompt, with all turns inside one frame. */
TEST(leaks, turns_in_a_frame_are_appended_all_the_same)
{
    struct kit k = kit_of("{{ '<|im_start|>user\\nJudge.\\n' }}{% for m in messages %}{{ m.role + "
                          "': ' }}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
                          "{% endif %}{% endfor %}{{ '\\n' }}{% endfor %}{{ 'Only the last of ' + "
                          "messages[-1].role + '.<|im_end|>\\n<|im_start|>assistant\\n' }}");
    struct chat c = {.messages = parse(&k, "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
                                           "\"assistant\", \"content\": \"yes\"}, {\"role\": "
                                           "\"user\", \"content\": \"go\"}]")};
    struct model_suffix x = {0};
    struct err e;

    cr_assert_eq(model_suffix(k.m, k.s, &c, 2, &(struct model_tail){0}, &x, &e), 0, "%s", e.text);
    cr_assert(x.rewrites);
    cr_assert_gt(x.ids.n, 0);
    vec_done(&x.ids);
    expect_trials(&k);
    kit_done(&k);
}

/* A template that shows no answers has no suffix: the caller renders everything. */
TEST(leaks, a_template_without_answers_is_told_apart)
{
    struct kit k = kit_of("{{ '<|im_start|>user\\n' + messages[0].content + '<|im_end|>\\n"
                          "<|im_start|>assistant\\n' }}");
    struct chat c = {.messages = parse(&k, A_LATE_SYSTEM)};
    struct model_suffix x = {0};
    struct err e;

    cr_assert_eq(model_suffix(k.m, k.s, &c, 2, &(struct model_tail){0}, &x, &e), -1);
    cr_assert_eq(e.kind, ERR_UNSUPPORTED, "%s", e.text);
    kit_done(&k);
}

/* Names of users and systems are reported as dropped unless the template writes them. */
TEST(leaks, a_template_that_writes_names_is_known)
{
    static const struct {
        const char *text;
        bool names;
    } cases[] = {
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
         false},
        {"{% for m in messages %}<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}\n"
         "{{ m.content }}<|im_end|>\n{% endfor %}",
         true},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kit k = kit_of(cases[i].text);

        cr_expect_eq(model_info(k.m)->names, cases[i].names, "%s", cases[i].text);
        kit_done(&k);
    }
}
