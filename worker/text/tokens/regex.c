/* PCRE2 (regex.h). A pattern comes with a model's folder, and PCRE2 neither counts all its work nor
 * can be stopped. So a search is made in small calls, each with little possible work, which is paid
 * for by its upper bound:
 *
 *   text     |........at............last.........stop..................|
 *                     starts that are tried       the end, as PCRE2 sees it
 *
 *   a match                       this is the result: nothing after `stop` was examined
 *   no match                      the next call begins after `last`
 *   a start that reaches `stop`   again from that start, with more text (PCRE2_PARTIAL_HARD)
 *   more than `limit` tries       again, start by start, with a higher limit
 *
 * For usual patterns and text one call is enough, which finds a match at its first start. */

#include "worker/text/tokens/regex.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "common/base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { STACK_START = 32 * 1024, STACK_MAX = 64 * 1024 * 1024, HEAP_MAX_KIB = 64 * 1024 };

enum {
    REACH = 2048,                 /* bytes that the first call examines */
    TRIES = 256,                  /* PCRE2's first match limit for one start */
    TRIES_MAX = 50 * 1000 * 1000, /* largest match limit: half a second */
    /* limit of starts x bytes x items of the pattern in a call: some 20 ms */
    CALL_WORK = 1 << 24,
    BYTES_A_STEP = 16,            /* bytes of text that are examined again for one step */
    CALL_STEPS = 8,               /* steps that a call costs */
    FAILED_A_STEP = 256,          /* bytes x items of a failed start for one step */
    COMPILED_BYTES_AN_ITEM = 256, /* compiled bytes per item, for a pattern that PCRE2 expands */
};

struct regex {
    pcre2_code *code;
    bool jitted;
    size_t items; /* items of the pattern: the largest number of steps for one character */
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    struct budget *budget, own;
    size_t reach;
};

/* Counts classes and groups. PCRE2 copies some repeated ones. */
static size_t count_items(struct str pattern, const pcre2_code *code)
{
    size_t n = 1, bytes = 0;

    for (size_t i = 0; i < pattern.len; i++)
        n += pattern.p[i] == '[' || pattern.p[i] == '(';
    (void)pcre2_pattern_info(code, PCRE2_INFO_SIZE, &bytes);
    return MAX_OF(n, bytes / COMPILED_BYTES_AN_ITEM);
}

/* The text is known to be UTF-8, so PCRE2 does not check it again. */
int regex_new(struct str pattern, struct regex **ret, struct err *e)
{
    struct regex *r;
    PCRE2_SIZE at;
    int code;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern.p, pattern.len,
                      PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_USE_OFFSET_LIMIT, &code, &at, NULL);

    if (!compiled) {
        PCRE2_UCHAR text[128] = "";

        pcre2_get_error_message(code, text, sizeof(text));
        return err_set(e, ERR_UNSUPPORTED, "regular expression: %s", (const char *)text);
    }
    r = mem_zalloc(sizeof(*r));
    r->code = compiled;
    r->jitted = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    r->items = count_items(pattern, compiled);
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

/* One group is enough, because only the whole match is needed. */
struct regex_scratch *regex_scratch_new(void)
{
    struct regex_scratch *s = mem_zalloc(sizeof(*s));

    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
    if (!s->match || !s->context || !s->stack)
        abort(); /* out of memory: aborts like mem_alloc */
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    pcre2_set_heap_limit(s->context, HEAP_MAX_KIB);
    budget_init(&s->own, BUDGET_DEFAULT_STEPS, BUDGET_DEFAULT_BYTES, 0, NULL);
    s->budget = &s->own;
    s->reach = REACH;
    return s;
}

void regex_scratch_free(struct regex_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

void regex_scratch_use(struct regex_scratch *s, struct budget *budget)
{
    s->budget = budget;
}

struct budget *regex_scratch_budget(const struct regex_scratch *s)
{
    return s->budget;
}

void regex_scratch_reach(struct regex_scratch *s, size_t bytes)
{
    s->reach = bytes;
}

/* State of one search: the limits of the next call of PCRE2. */
struct regex_search {
    struct str text;
    size_t at, last, stop;
    size_t reach;
    size_t single_until; /* starts before this position are tried one by one */
    uint32_t limit;
};

/* Chooses `last` and `stop`. The text never seems to end inside of a character, nor after a line
 * end, where "^" would have a different meaning. */
static void plan_call(const struct regex *r, struct regex_search *q)
{
    size_t rest = q->text.len - q->at;

    q->stop = q->text.len;
    if (q->reach < rest) {
        q->stop = q->at + q->reach;
        while (q->stop < q->text.len && (((unsigned char)q->text.p[q->stop] & 0xc0) == 0x80 ||
                                         q->text.p[q->stop - 1] == '\n'))
            q->stop++;
    }
    q->last = q->at;
    if (q->at >= q->single_until)
        q->last += CALL_WORK / ((q->stop - q->at + 1) * r->items);
    q->last = MIN_OF(q->last, q->stop);
}

/* Returns the start after `last`. */
static size_t next_start(const struct regex_search *q)
{
    size_t at = q->last + 1;

    while (at < q->text.len && ((unsigned char)q->text.p[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Continues after a call in which no start up to `last` matched. Returns 1 if starts are left, 0,
 * or -1. */
static int pass_starts(const struct regex *r, struct regex_scratch *s, struct regex_search *q)
{
    size_t next = q->last < q->stop ? next_start(q) : q->stop;
    uint64_t looked = (uint64_t)(q->stop - q->at) * r->items;

    if (q->last >= q->stop && q->stop == q->text.len)
        return 0;
    if (!budget_spend(s->budget, (next - q->at) * (1 + looked / FAILED_A_STEP)))
        return -1;
    q->at = next;
    q->reach = s->reach;
    q->limit = TRIES;
    return q->at <= q->text.len;
}

/* Handles a start that would continue beyond `stop`: again from there, with more text. */
static bool reach_further(const struct regex *r, struct regex_scratch *s, struct regex_search *q)
{
    q->at = pcre2_get_ovector_pointer(s->match)[0];
    q->reach = MAX_OF(q->stop - q->at, s->reach) * 4;
    return budget_spend(s->budget, (uint64_t)q->reach * r->items / BYTES_A_STEP / 4 + 1);
}

/* Handles a start that needs more tries: searches for it, or increases its limit. */
static bool try_harder(struct regex_scratch *s, struct regex_search *q)
{
    if (q->at >= q->single_until) {
        q->single_until = q->last + 1;
        return true;
    }
    if (q->limit > TRIES_MAX / 8)
        return budget_exhaust(s->budget, BUDGET_STEPS);
    q->limit *= 8;
    return budget_spend(s->budget, q->limit);
}

int regex_find(const struct regex *r, struct regex_scratch *s, struct str text, size_t from,
               size_t *start, size_t *end)
{
    struct regex_search q = {.text = text, .at = from, .reach = s->reach, .limit = TRIES};
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(s->match);

    while (budget_spend(s->budget, CALL_STEPS)) {
        bool cut;
        int rc;

        plan_call(r, &q);
        cut = q.stop < text.len;
        pcre2_set_match_limit(s->context, q.limit);
        pcre2_set_offset_limit(s->context, q.last);
        rc = pcre2_match(r->code, (PCRE2_SPTR)text.p, q.stop, q.at,
                         PCRE2_NO_UTF_CHECK | (cut ? PCRE2_PARTIAL_HARD : 0), s->match, s->context);
        if (rc >= 0 && !(cut && offsets[0] >= q.stop)) {
            *start = offsets[0];
            *end = offsets[1];
            return 1;
        }
        /* at the end of the text a partial match is no match, nor do the starts before it match */
        if (rc >= 0) {
            q.last = q.stop;
            rc = PCRE2_ERROR_NOMATCH;
        }
        if (rc == PCRE2_ERROR_NOMATCH) {
            rc = pass_starts(r, s, &q);
            if (rc <= 0)
                return rc;
        } else if (rc == PCRE2_ERROR_PARTIAL      ? !reach_further(r, s, &q)
                   : rc == PCRE2_ERROR_MATCHLIMIT ? !try_harder(s, &q)
                                                  : !budget_exhaust(s->budget, BUDGET_BYTES)) {
            return -1;
        }
    }
    return -1;
}
