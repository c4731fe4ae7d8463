/* One commit record -> checkpoints in the forest. Everything in it is checked before anything is
 * linked: a record that makes no sense is refused whole. */
#include <string.h>

#include "worker/session/commit.h"
#include "worker/session/policy.h"
#include "worker/session/record.h"

enum { MESSAGES_MAX = 1 << 24, TOTAL_MAX = INT32_MAX };

/* What a commit record says, before it is carried out. */
struct commit {
    struct call_record call;
    unsigned flags;
    struct prompt_env *env;
    const struct json *tools, *kwargs;
    struct message_node *base;
    const struct json **messages;
    uint32_t n_messages;
    struct checkpoint *parent;
    uint32_t chain;
    struct checkpoint *run;
    uint32_t common;
    uint32_t n_rest;            /* ids behind those */
    struct checkpoint *answers; /* in the forest's arena, without links */
    enum commit_duplicate *modes;
    struct checkpoint **duplicates;
    uint32_t n_answers;
    struct checkpoint shared; /* fields that all answers have in common */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

static int read_json(struct record_in *r, struct arena *tmp, bool optional, const struct json **ret,
                     struct err *e)
{
    struct str text = record_str(r);

    *ret = NULL;
    if (!text.p)
        return optional && !r->bad ? 0 : bad(e, "a value is missing");
    if (json_parse(tmp, text, ret, e) != 0)
        return bad(e, "a value is not JSON");
    return 0;
}

static struct checkpoint *read_checkpoint(const struct forest *f, struct record_in *r)
{
    uint32_t id = record_u32(r);

    if (id < f->checkpoints.n)
        return f->checkpoints.at[id];
    r->bad = true;
    return NULL;
}

/* --- reading --- */

static int read_place(struct forest *f, struct record_in *r, struct arena *tmp, struct commit *c,
                      struct err *e)
{
    if (c->flags & COMMIT_NEW_ENV) {
        if (read_json(r, tmp, true, &c->tools, e) != 0 ||
            read_json(r, tmp, true, &c->kwargs, e) != 0)
            return -1;
        if (forest_env(f, c->tools, c->kwargs))
            return bad(e, "a new environment is not new");
    } else {
        uint32_t id = record_u32(r);

        if (id >= f->envs.n)
            return bad(e, "unknown environment");
        c->env = f->envs.at[id];
    }
    if (c->flags & COMMIT_BASE) {
        uint32_t id = record_u32(r);

        if (id >= f->nodes.n || f->nodes.at[id]->env != c->env)
            return bad(e, "unknown node");
        c->base = f->nodes.at[id];
    }
    c->n_messages = record_u32(r);
    if (c->n_messages > MESSAGES_MAX || c->n_messages > (size_t)(r->end - r->p) ||
        (!c->base && c->n_messages == 0))
        return bad(e, "impossible number of messages");
    c->messages = arena_calloc(tmp, c->n_messages, sizeof(*c->messages));
    for (uint32_t i = 0; i < c->n_messages; i++)
        if (read_json(r, tmp, false, &c->messages[i], e) != 0)
            return -1;
    return 0;
}

static int read_versions(struct forest *f, struct record_in *r, struct checkpoint *t, struct err *e)
{
    struct checkpoint_version *v;
    uint32_t at = 0;

    /* An engine may name more versions than it sampled tokens: their spans are empty. */
    t->n_versions = record_u32(r);
    if (t->n_versions > (size_t)(r->end - r->p))
        return bad(e, "more versions than bytes");
    v = arena_calloc(&f->arena, t->n_versions, sizeof(*v));
    for (uint32_t i = 0; i < t->n_versions; i++) {
        v[i].version = forest_text(f, record_str(r));
        v[i].start = record_u32(r);
        v[i].end = record_u32(r);
        if (v[i].start < at || v[i].end < v[i].start || v[i].end > t->n || !v[i].version.p)
            return bad(e, "a version span outside the answer");
        at = v[i].end;
    }
    t->versions = v;
    return 0;
}

static int read_tokens(struct forest *f, struct record_in *r, bool text, struct checkpoint *t,
                       struct err *e)
{
    const char *ids = record_ids(r, &t->n);

    t->has_logprobs = record_u(r) != 0;
    if (!ids || (t->n == 0) != text)
        return bad(e, text ? "a text with tokens" : "an answer without tokens");
    if (t->has_logprobs && !record_floats(r, t->n))
        return bad(e, "logprobs are missing");
    return read_versions(f, r, t, e);
}

static void read_basis(struct forest *f, struct record_in *r, struct checkpoint *t)
{
    uint64_t cached;

    t->logprob_basis = forest_text(f, record_str(r));
    t->scored_tokens = record_u32(r);
    cached = record_u(r);
    t->cached_told = cached > 0;
    t->cached_tokens = cached > 0 ? (uint32_t)(cached - 1) : 0;
}

static int read_answer(struct forest *f, struct record_in *r, struct commit *c, uint32_t i,
                       struct err *e)
{
    struct arena tmp = {0};
    struct checkpoint *t = &c->answers[i];
    const struct json *message;
    struct str experts;
    int rc;

    *t = c->shared;
    if (read_tokens(f, r, c->flags & COMMIT_TEXT, t, e) != 0)
        return -1;
    t->cut = record_u(r) != 0;
    t->finish_reason = forest_text(f, record_str(r));
    rc = read_json(r, &tmp, false, &message, e);
    if (rc == 0)
        t->message = message_copy(&f->arena, message);
    arena_done(&tmp);
    if (rc != 0)
        return -1;
    t->response_id = forest_text(f, record_str(r));
    t->parse_warning = forest_text(f, record_str(r));
    experts = record_str(r);
    t->has_experts = experts.p != NULL;
    t->experts_len = (uint32_t)experts.len;
    t->experts_from = record_u32(r);
    t->experts_rows = record_u32(r);
    t->experts_layers = record_u32(r);
    t->experts_topk = record_u32(r);
    t->queue_us = record_u(r);
    t->engine_us = record_u(r);
    t->gateway_us = record_u(r);
    c->modes[i] = (enum commit_duplicate)record_u(r);
    if (c->modes[i] != DUPLICATE_NONE)
        c->duplicates[i] = read_checkpoint(f, r);
    if (c->flags & COMMIT_BASIS)
        read_basis(f, r, t);
    return r->bad || c->modes[i] > DUPLICATE_KEEP ? bad(e, "torn answer") : 0;
}

static void read_why(struct forest *f, struct record_in *r, struct checkpoint *t)
{
    uint64_t cause = record_u(r);

    t->cause = cause < CAUSE_COUNT ? (enum session_cause)cause : CAUSE_NEW_ROOT;
    t->diff_message = record_u32(r);
    t->diff_field = forest_text(f, record_str(r));
    t->diff_stored = forest_text(f, record_str(r));
    t->diff_request = forest_text(f, record_str(r));
    t->label = forest_text(f, record_str(r));
    t->parent_label = forest_text(f, record_str(r));
}

static int check_context(struct commit *c, struct err *e)
{
    struct checkpoint *t = &c->shared;
    uint64_t before = c->parent ? c->parent->total : 0;

    if (t->trim > (c->parent ? c->parent->n : 0))
        return bad(e, "trims more than the answer");
    if ((uint64_t)c->common + c->n_rest > TOTAL_MAX || t->n_close > c->common + c->n_rest)
        return bad(e, "impossible context");
    t->n_context = c->common + c->n_rest;
    before += t->n_context;
    if (before - t->trim > TOTAL_MAX)
        return bad(e, "too many tokens");
    t->total = (uint32_t)(before - t->trim);
    return 0;
}

static int read_context(struct forest *f, struct record_in *r, struct commit *c, struct err *e)
{
    struct checkpoint *t = &c->shared;

    t->trim = record_u32(r);
    t->n_close = record_u32(r);
    if (c->flags & COMMIT_SENT)
        t->sent = record_u64(r);
    if (c->flags & COMMIT_RUN) {
        c->run = read_checkpoint(f, r);
        c->common = record_u32(r);
        if (!c->run || c->common > context_run_length(&c->run->context))
            return bad(e, "shares more context than there is");
    }
    if (!record_ids(r, &c->n_rest))
        return bad(e, "torn context");
    read_why(f, r, t);
    return check_context(c, e);
}

/* Behind the answers: what the request asked and what each answer told. */
static int read_told(struct forest *f, struct record_in *r, struct commit *c, struct err *e)
{
    uint64_t asked = record_u(r);

    if (asked == 1)
        c->call.asked = forest_str(f, record_str(r));
    else if (asked - 2 < f->calls.n)
        c->call.asked = f->calls.at[asked - 2].asked;
    else if (asked > 0)
        return bad(e, "asks what no call asked");
    for (uint32_t i = 0; i < c->n_answers; i++)
        c->answers[i].told = forest_str(f, record_str(r));
    return 0;
}

static int read_commit(struct session *s, struct record_in *r, struct arena *tmp, struct commit *c,
                       struct err *e)
{
    struct forest *f = &s->forest;

    if (!(c->flags & COMMIT_RAW) && read_place(f, r, tmp, c, e) != 0)
        return -1;
    if (c->flags & COMMIT_PARENT) {
        c->parent = read_checkpoint(f, r);
        if (!c->parent || !c->parent->node || (c->flags & COMMIT_RAW))
            return bad(e, "stands on a turn that does not exist");
    }
    if (c->flags & COMMIT_CHAIN)
        c->chain = record_u32(r);
    if (read_context(f, r, c, e) != 0)
        return -1;
    c->n_answers = record_u32(r);
    if (r->bad || c->n_answers == 0 || c->n_answers > (size_t)(r->end - r->p))
        return bad(e, "impossible number of answers");
    c->answers = arena_calloc(&f->arena, c->n_answers, sizeof(*c->answers));
    c->modes = arena_calloc(tmp, c->n_answers, sizeof(*c->modes));
    c->duplicates = arena_calloc(tmp, c->n_answers, sizeof(struct checkpoint *));
    for (uint32_t i = 0; i < c->n_answers; i++) {
        if (read_answer(f, r, c, i, e) != 0)
            return -1;
        if ((uint64_t)c->shared.total + c->answers[i].n > TOTAL_MAX)
            return bad(e, "too many tokens");
    }
    if (c->flags & COMMIT_TOLD && read_told(f, r, c, e) != 0)
        return -1;
    return !r->bad && r->p == r->end ? 0 : bad(e, "bytes behind the record");
}

/* --- carrying out --- */

static struct message_node *make_place(struct forest *f, const struct commit *c)
{
    struct prompt_env *g = c->env ? c->env : forest_env_add(f, c->tools, c->kwargs);
    struct message_node *at = c->base ? c->base : &g->root;

    for (uint32_t i = 0; i < c->n_messages; i++)
        at = forest_child(f, at, c->messages[i]);
    return at;
}

static void link_node(struct session *s, struct checkpoint *t, struct message_node *prompt)
{
    t->node = forest_child_of_own(&s->forest, prompt, t->message);
    t->older = t->node->newest;
    t->node->newest = t;
    forest_note_echo(&s->forest, t->node);
    prompt->samples++;
    for (struct message_node *n = prompt; n->depth > 0 && !(t->parent && n == t->parent->node);
         n = n->parent)
        n->through = t;
}

static void unlink_node(struct checkpoint *t)
{
    struct checkpoint **at = &t->node->newest;

    while (*at && *at != t)
        at = &(*at)->older;
    if (*at)
        *at = t->older;
    t->hidden = true;
}

/* The newest of a node stands first. */
static void bring_forward(struct checkpoint *t)
{
    struct message_node *n = t->node;

    unlink_node(t);
    t->hidden = false;
    t->older = n->newest;
    n->newest = t;
}

static void link_duplicate(struct session *s, struct checkpoint *t, struct checkpoint *duplicate,
                           enum commit_duplicate mode)
{
    s->refreshed++;
    if (mode == DUPLICATE_REPLACE) {
        if (duplicate->parent)
            duplicate->parent->children--;
        unlink_node(duplicate);
        return;
    }
    unlink_node(t);
    if (t->parent)
        t->parent->children--;
    duplicate->seq = t->seq;
    bring_forward(duplicate);
}

/* What clients name the answer and its calls by. */
static void note_ids(struct forest *f, struct checkpoint *t)
{
    const struct json *calls = json_get(t->message, "tool_calls");

    if (t->response_id.p)
        (void)map_set(&f->by_response, response_key(t->response_id), t);
    for (size_t i = 0; json_at(calls, i); i++) {
        struct str id = json_string(json_get(json_at(calls, i), "id"));

        if (id.len)
            (void)map_set(&f->by_call, id, t);
    }
}

static int link_checkpoint(struct session *s, const struct commit *c, uint32_t i,
                           struct message_node *prompt, struct err *e)
{
    struct forest *f = &s->forest;
    struct checkpoint *t = &c->answers[i], *duplicate = c->duplicates[i];

    t->id = (uint32_t)f->checkpoints.n;
    t->answer = i;
    t->seq = s->next_seq++;
    t->total = c->shared.total + t->n;
    t->text = t->n == 0 || (t->parent && t->parent->text);
    *vec_push(&f->checkpoints) = t;
    f->tokens += t->n;
    if (t->parent)
        t->parent->children++;
    if (prompt)
        link_node(s, t, prompt);
    note_ids(f, t);
    if (duplicate && !duplicate->hidden && duplicate->node == t->node && duplicate != t) {
        t->cause = CAUSE_SAME_ANSWER;
        link_duplicate(s, t, duplicate, c->modes[i]);
    }
    s->forks[t->cause]++;
    if (s->residence == RESIDENT)
        s->store->totals.forks[t->cause]++;
    if (!prompt || !s->options.policy->commit)
        return 0;
    /* Further answers of one call start chains of their own. */
    return s->options.policy->commit(s, t, i == 0 ? c->chain : UINT32_MAX,
                                     i == 0 && (c->flags & COMMIT_ROLLBACK), e);
}

static int walk_commit(struct record_in *r, struct commit_sum *ret, struct commit_bulk *bulk,
                       struct err *e);

static size_t padded(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* The bulk of the call: out of the record, and before that what the run cannot share. */
static int make_payload(struct session *s, struct commit *c, struct record_in body,
                        struct context_run *run, struct err *e)
{
    const struct context_run *base = c->run ? &c->run->context : NULL;
    bool copies = base && !context_run_extends(base, c->common);
    struct commit_bulk bulk = {0};
    struct record_in again = body;
    struct commit_sum sum;
    size_t before, at;

    if (walk_commit(&body, &sum, &bulk, e) != 0 ||
        (copies && session_recall_checkpoint(s, c->run, e) != 0))
        return -1;
    if (bulk.n + (uint64_t)c->common * sizeof(int32_t) > UINT32_MAX)
        return bad(e, "too large");
    before = forest_run(&s->forest, run, base, c->common, c->n_rest) * sizeof(int32_t);
    run->payload = payload_new(s, c->call.number, before + bulk.n, copies);
    if (before > 0)
        context_run_copy(base, c->common, (int32_t *)(void *)run->payload->bytes);
    bulk = (struct commit_bulk){.to = run->payload->bytes + before};
    (void)walk_commit(&again, &sum, &bulk, e);
    at = run->n * sizeof(int32_t);
    for (uint32_t i = 0; i < c->n_answers; i++) {
        struct checkpoint *t = &c->answers[i];

        t->context = *run;
        t->at = (uint32_t)at;
        at += (size_t)t->n * (t->has_logprobs ? 8 : 4) + padded(t->experts_len);
    }
    return 0;
}

static int carry_out(struct session *s, struct commit *c, struct record_in body, struct err *e)
{
    struct forest *f = &s->forest;
    struct message_node *prompt;
    struct context_run run;

    if (make_payload(s, c, body, &run, e) != 0)
        return -1;
    prompt = c->flags & COMMIT_RAW ? NULL : make_place(f, c);
    c->call.first_checkpoint = (uint32_t)f->checkpoints.n;
    c->call.n_checkpoints = c->n_answers;
    s->trimmed += c->shared.trim;
    for (uint32_t i = 0; i < c->n_answers; i++) {
        c->answers[i].call = (uint32_t)f->calls.n;
        if (link_checkpoint(s, c, i, prompt, e) != 0)
            return -1;
    }
    return 0;
}

static void add_call(struct session *s, const struct call_record *call)
{
    struct forest *f = &s->forest;
    struct hash_entry *same =
        map_get(&f->by_hash, str_of((const char *)call->body_hash, sizeof(call->body_hash)));

    *vec_push(&f->calls) = *call;
    if (!same) {
        same = ARENA_NEW(&f->arena, struct hash_entry);
        memcpy(same->body_hash, call->body_hash, sizeof(same->body_hash));
        (void)map_set(&f->by_hash, str_of((const char *)same->body_hash, sizeof(same->body_hash)),
                      same);
    }
    f->calls.at[f->calls.n - 1].same_body = same->newest;
    same->newest = (uint32_t)f->calls.n;
    if (s->next_call <= call->number)
        s->next_call = call->number + 1;
}

/* A chain's continuation must fit the chain. */
static int check_chain(const struct session *s, const struct commit *c, struct err *e)
{
    const struct chain *chain;

    if (s->options.policy != &policy_chains)
        return c->flags & (COMMIT_CHAIN | COMMIT_ROLLBACK) ? bad(e, "names a chain") : 0;
    if (!(c->flags & COMMIT_CHAIN))
        return c->flags & COMMIT_ROLLBACK ? bad(e, "rolls nothing back") : 0;
    if (c->chain >= s->chains.n || s->chains.at[c->chain]->closed)
        return bad(e, "names a chain that is not open");
    chain = s->chains.at[c->chain];
    if (!(c->flags & COMMIT_EXHAUSTED) &&
        c->parent != (c->flags & COMMIT_ROLLBACK ? chain->head->parent : chain->head))
        return bad(e, "does not continue its chain");
    return 0;
}

/* A call without room: its chain is closed. */
static int close_chain(struct session *s, struct record_in *r, struct commit *c, struct err *e)
{
    uint32_t kept;

    c->call.exhausted = true;
    c->chain = c->flags & COMMIT_CHAIN ? record_u32(r) : UINT32_MAX;
    kept = c->flags & COMMIT_KEPT ? record_u32(r) : 0;
    if (r->bad || r->p != r->end || (kept && !(c->flags & COMMIT_CHAIN)))
        return bad(e, "torn");
    if (check_chain(s, c, e) != 0)
        return -1;
    return c->flags & COMMIT_CHAIN ? chains_close(s, c->chain, kept, e) : 0;
}

int session_apply_commit(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e)
{
    struct arena tmp = {0};
    struct commit c = {.chain = UINT32_MAX, .call.at_ms = now_ms};
    struct record_in body = *r;
    const char *temperature;
    struct plan *p;
    int rc;

    c.call.number = record_u(r);
    c.call.body_hash[0] = record_u64(r);
    c.call.body_hash[1] = record_u64(r);
    c.call.max_tokens = (int64_t)(record_u(r) & INT64_MAX);
    temperature = record_floats(r, 1);
    if (temperature)
        memcpy(&c.call.temperature, temperature, sizeof(float));
    c.flags = (unsigned)record_u32(r);
    c.call.prompt_tokens = record_u32(r);
    if (c.flags & COMMIT_KEY)
        c.call.key = forest_str(&s->forest, record_str(r));
    if (c.flags & COMMIT_EXHAUSTED) {
        rc = close_chain(s, r, &c, e);
        c.call.first_checkpoint = (uint32_t)s->forest.checkpoints.n;
    } else {
        rc = read_commit(s, r, &tmp, &c, e);
        if (rc == 0)
            rc = check_chain(s, &c, e);
        for (uint32_t i = 0; rc == 0 && i < c.n_answers; i++) {
            c.answers[i].parent = c.parent;
            c.answers[i].depth = c.parent ? c.parent->depth + 1 : 1;
            c.answers[i].at_ms = now_ms;
        }
        if (rc == 0)
            rc = carry_out(s, &c, body, e);
    }
    if (rc == 0) {
        add_call(s, &c.call);
        s->updated_ms = now_ms;
        if (s->residence != LOADING)
            s->idle_ms = now_ms;
        p = plan_find(s, c.call.number);
        if (p)
            plan_free(p);
    }
    arena_done(&tmp);
    return rc;
}

/* --- only its sums, or its bulk --- */

static void put_bulk(struct commit_bulk *b, const char *p, size_t n)
{
    if (b->to && p && n > 0)
        memcpy(b->to + b->n, p, n);
    b->n += padded(n);
}

static void skip_strs(struct record_in *r, uint32_t n)
{
    for (uint32_t i = 0; i < n && !r->bad; i++)
        (void)record_str(r);
}

static void skip_us(struct record_in *r, uint32_t n)
{
    for (uint32_t i = 0; i < n && !r->bad; i++)
        (void)record_u(r);
}

static uint32_t walk_ids(struct record_in *r, struct commit_bulk *bulk)
{
    uint32_t n;
    const char *ids = record_ids(r, &n);

    put_bulk(bulk, ids, n * sizeof(int32_t));
    return n;
}

static uint32_t walk_answer(struct record_in *r, unsigned flags, struct commit_bulk *bulk)
{
    uint32_t n = walk_ids(r, bulk), n_versions;
    struct str experts;

    if (record_u(r))
        put_bulk(bulk, record_floats(r, n), n * sizeof(float));
    n_versions = record_u32(r);
    for (uint32_t i = 0; i < n_versions && !r->bad; i++) {
        skip_strs(r, 1);
        skip_us(r, 2);
    }
    skip_us(r, 1);   /* cut */
    skip_strs(r, 4); /* finish, message, response id, warning */
    experts = record_str(r);
    put_bulk(bulk, experts.p, experts.len);
    skip_us(r, 7); /* experts' four, three times */
    if (record_u(r) != DUPLICATE_NONE)
        skip_us(r, 1);
    if (flags & COMMIT_BASIS) {
        skip_strs(r, 1);
        skip_us(r, 2);
    }
    return n;
}

static void skip_place(struct record_in *r, unsigned flags)
{
    if (flags & COMMIT_NEW_ENV)
        skip_strs(r, 2);
    else
        skip_us(r, 1);
    if (flags & COMMIT_BASE)
        skip_us(r, 1);
    skip_strs(r, record_u32(r));
}

static int walk_commit(struct record_in *r, struct commit_sum *ret, struct commit_bulk *bulk,
                       struct err *e)
{
    unsigned flags;
    uint32_t n;

    *ret = (struct commit_sum){.call = record_u(r)};
    (void)record_u64(r);
    (void)record_u64(r);
    skip_us(r, 1);
    (void)record_floats(r, 1);
    flags = record_u32(r);
    skip_us(r, 1);
    if (flags & COMMIT_KEY)
        skip_strs(r, 1);
    if (flags & COMMIT_EXHAUSTED)
        return r->bad ? bad(e, "torn") : 0;
    if (!(flags & COMMIT_RAW))
        skip_place(r, flags);
    skip_us(r, !!(flags & COMMIT_PARENT) + !!(flags & COMMIT_CHAIN) + 2); /* and trim, close */
    if (flags & COMMIT_SENT)
        (void)record_u64(r);
    if (flags & COMMIT_RUN)
        skip_us(r, 2);
    ret->tokens = walk_ids(r, bulk);
    skip_us(r, 2); /* cause, diff message */
    skip_strs(r, 5);
    n = record_u32(r);
    for (uint32_t i = 0; i < n && !r->bad; i++)
        ret->tokens += walk_answer(r, flags, bulk);
    return r->bad ? bad(e, "torn") : 0;
}

int session_sum_commit(struct record_in *r, struct commit_sum *ret, struct err *e)
{
    struct commit_bulk bulk = {0};

    return walk_commit(r, ret, &bulk, e);
}

int session_record_bulk(struct str record, struct str id, uint64_t call, struct commit_bulk *ret)
{
    struct record_in r = record_in_of(record);
    uint64_t type = record_u(&r), version = record_u(&r);
    struct str whose = record_str(&r);
    struct commit_sum sum;

    (void)record_u64(&r);
    if (r.bad || type != RECORD_COMMIT || version != RECORD_VERSION || !str_eq(whose, id) ||
        walk_commit(&r, &sum, ret, NULL) != 0)
        return -1;
    return sum.call == call ? 0 : -1;
}
