/* PCRE2 (regex.h). Bounds hold for every match: STEPS_MAX steps and STACK_MAX bytes of the JIT's
 * stack. They are large enough for any sane pattern and text; running over them is an error of
 * the call, not a shorter match. */

#include "worker/tokens/regex.h"

#include <stdlib.h>

#include "common/base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { STACK_START = 32 * 1024, STACK_MAX = 64 * 1024 * 1024, STEPS_MAX = 50 * 1000 * 1000 };

struct regex {
    pcre2_code *code;
    bool jitted;
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* The text is known to be UTF-8, so PCRE2 does not check it again. */
int regex_new(struct str pattern, struct regex **ret, struct err *e)
{
    struct regex *r;
    PCRE2_SIZE at;
    int code;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.len,
                                         PCRE2_UTF | PCRE2_NO_UTF_CHECK, &code, &at, NULL);

    if (!compiled) {
        PCRE2_UCHAR text[128] = "";

        pcre2_get_error_message(code, text, sizeof(text));
        return err_set(e, ERR_UNSUPPORTED, "regular expression: %s", (const char *)text);
    }
    r = mem_zalloc(sizeof(*r));
    r->code = compiled;
    r->jitted = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    *ret = r;
    return 0;
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

bool regex_jitted(const struct regex *r)
{
    return r->jitted;
}

/* One per process or thread; one group is enough, as only the whole match is asked for. */
struct regex_scratch *regex_scratch_new(void)
{
    struct regex_scratch *s = mem_zalloc(sizeof(*s));

    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
    if (!s->match || !s->context || !s->stack)
        abort(); /* out of memory, as mem_alloc */
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    pcre2_set_match_limit(s->context, STEPS_MAX);
    return s;
}

/* See regex.h. */
void regex_scratch_free(struct regex_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

/* See regex.h. */
int regex_find(const struct regex *r, struct regex_scratch *s, struct str text, size_t from,
               size_t *start, size_t *end)
{
    const PCRE2_SIZE *offsets;
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text.p, text.len, from, PCRE2_NO_UTF_CHECK, s->match,
                         s->context);

    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0)
        return -1;
    offsets = pcre2_get_ovector_pointer(s->match);
    *start = offsets[0];
    *end = offsets[1];
    return 1;
}
