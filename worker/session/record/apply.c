/* Applies a commit record: makes checkpoints in the forest. The same function serves a call that
 * was answered a moment ago and a session that is read back into memory, so memory after a restart
 * equals memory before it.
 *
 *   commit_record_read    bytes -> struct commit_record       (commit_record.c)
 *   take_commit           its meaning in this session: environment, node, parent, answers
 *   check_chain           a chain's continuation must fit the chain
 *   carry_out             payloads, message nodes, checkpoints, the policy's own data
 *   add_call              the call itself, found again by the hash of its body
 *
 * Everything in a record is checked before anything is linked: an invalid record is refused as a
 * whole (-1 and e), and the session is unchanged. */
#include <string.h>

#include "common/codec/json.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit_record.h"
#include "worker/session/record/same_answer.h"
#include "worker/session/record/take_answer.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/store.h"

enum { TOTAL_MAX = INT32_MAX };

/* Where the numbers of an answer are in the call's bulk. */
struct answer_pieces {
    uint32_t own, apart[ROWS_KINDS]; /* number of its piece; apart is 0 if the rows are in `own` */
    struct str told;                 /* replay text in the record; or: */
    size_t told_bytes;               /* length of the text that is next in BULK_TOLD */
};

/* A commit record in its session, before its changes are made. */
struct commit {
    struct commit_record rec;
    struct call_bulk *bulk; /* with COMMIT_BULK, else NULL */
    struct call_record call;
    struct prompt_env *env;
    struct env_key env_key;  /* key of a new environment */
    struct arena *ready_env; /* prepared values of that environment; or NULL */
    struct message_node *base;
    const struct json **messages; /* NULL: they are in `ready` */
    /* prepared texts and copies, for the recorded call or for a long record that is read back;
     * NULL: none */
    struct new_messages *ready;
    struct checkpoint *parent;
    struct checkpoint *run;
    struct checkpoint **answers; /* in the forest's arena, not linked yet */
    struct answer_pieces *pieces;
    struct checkpoint **duplicates;
    enum commit_duplicate *modes;
    struct checkpoint shared;          /* fields that all answers have in common, and the */
    struct checkpoint_remarks remarks; /* request's */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

/* Parses a JSON value. An optional value that is absent becomes NULL. */
static int read_json(struct str text, struct arena *tmp, bool optional, const struct json **ret,
                     struct err *e)
{
    *ret = NULL;
    if (!text.p)
        return optional ? 0 : bad(e, "a value is missing");
    if (json_parse(tmp, text, ret, e) != 0)
        return bad(e, "a value is not JSON");
    return 0;
}

static struct checkpoint *find_checkpoint(const struct forest *f, uint32_t id)
{
    return id < f->checkpoints.n ? f->checkpoints.at[id] : NULL;
}

/* --- meaning of the record in its session --- */

/* Finds the session's environment that the record names, or reads the new one from the record. */
static int find_env(struct session *s, struct arena *tmp, struct commit *c, struct err *e)
{
    struct forest *f = &s->forest;

    if (c->rec.flags & COMMIT_NEW_ENV) {
        c->ready_env = session_new_env(s, c->rec.call, &c->env_key);
        c->env_key.pool = c->rec.pool;
        if (!c->ready_env && (read_json(c->rec.tools, tmp, true, &c->env_key.tools, e) != 0 ||
                              read_json(c->rec.kwargs, tmp, true, &c->env_key.kwargs, e) != 0))
            return -1;
        return forest_env(f, &c->env_key) ? bad(e, "a new environment is not new") : 0;
    }
    if (c->rec.env >= f->envs.n)
        return bad(e, "unknown environment");
    c->env = f->envs.at[c->rec.env];
    return 0;
}

/* Finds the environment, the node below which the messages are added, and the new messages. */
static int find_place(struct session *s, struct arena *tmp, struct commit *c, struct err *e)
{
    struct forest *f = &s->forest;
    struct record_in texts = c->rec.messages;

    if (find_env(s, tmp, c, e) != 0)
        return -1;
    if (c->rec.flags & COMMIT_BASE) {
        if (c->rec.base >= f->nodes.n || f->nodes.at[c->rec.base]->env != c->env)
            return bad(e, "unknown node");
        c->base = f->nodes.at[c->rec.base];
    }
    c->ready = session_new_messages(s, c->rec.call);
    if (c->ready)
        return 0;
    c->messages = arena_calloc(tmp, c->rec.n_messages, sizeof(*c->messages));
    for (uint32_t i = 0; i < c->rec.n_messages; i++)
        if (read_json(record_str(&texts), tmp, false, &c->messages[i], e) != 0)
            return -1;
    return 0;
}

/* Checks the sums of tokens: they must fit the parent checkpoint, and an int32. */
static int check_context(struct commit *c, struct err *e)
{
    struct checkpoint *t = &c->shared;
    const struct commit_record *r = &c->rec;
    uint64_t before = c->parent ? c->parent->total : 0;

    if (t->trim > (c->parent ? c->parent->n : 0))
        return bad(e, "trims more than the answer");
    if ((uint64_t)r->common + r->n_context > TOTAL_MAX || t->n_close > r->common + r->n_context)
        return bad(e, "impossible context");
    t->n_context = r->common + r->n_context;
    before += t->n_context;
    if (before - t->trim > TOTAL_MAX)
        return bad(e, "too many tokens");
    t->total = (uint32_t)(before - t->trim);
    return 0;
}

/* Returns the difference to the stored history. Returns NULL if there is none. */
static const struct checkpoint_diff *take_diff(struct forest *f, const struct commit_record *r)
{
    struct checkpoint_diff *ret;

    if (!r->diff_field.p)
        return NULL;
    ret = arena_alloc(&f->arena, sizeof(*ret));
    *ret = (struct checkpoint_diff){.message = r->diff_message,
                                    .field = forest_text(f, r->diff_field),
                                    .stored = forest_text(f, r->diff_stored),
                                    .request = forest_text(f, r->diff_request)};
    return ret;
}

/* Reads what the answers have in common: the context between the parent and them, and the cause of
 * their position. */
static int take_context(struct forest *f, struct arena *tmp, struct commit *c, struct err *e)
{
    const struct commit_record *r = &c->rec;
    const struct json *fields;
    struct checkpoint *t = &c->shared;

    t->trim = r->trim;
    t->n_close = r->close;
    t->sent = r->sent;
    if (r->flags & COMMIT_RUN) {
        c->run = find_checkpoint(f, r->run);
        if (!c->run || r->common > context_run_length(&c->run->context))
            return bad(e, "shares more context than there is");
        if (!context_run_extends(&c->run->context, r->common))
            return bad(e, "shares context over too many others");
    }
    t->cause = r->cause < CAUSE_COUNT ? (enum session_cause)r->cause : CAUSE_NEW_ROOT;
    c->remarks.diff = take_diff(f, r);
    c->remarks.label = forest_text(f, r->label);
    c->remarks.parent_label = forest_text(f, r->parent_label);
    /* must be valid JSON, because exports write it unchanged */
    if (read_json(r->dropped_fields, tmp, true, &fields, e) != 0)
        return -1;
    c->remarks.dropped_fields = forest_text(f, r->dropped_fields);
    return check_context(c, e);
}

static int take_asked(struct forest *f, struct commit *c, struct err *e)
{
    uint64_t asked = c->rec.asked;

    c->call.asked_brief = c->rec.flags & COMMIT_ASKED_BRIEF;
    if (asked == 1)
        c->call.asked = forest_str(f, c->rec.asked_text);
    else if (asked - 2 < f->calls.n)
        c->call.asked = f->calls.at[asked - 2]->asked;
    else if (asked > 0)
        return bad(e, "asks what no call asked");
    return 0;
}

/* Marks the answer's pieces as named; each may be named once. Returns false if one does not match
 * the answer. The second copy, from which the session may come, lacks pieces of COMMIT_ROWS. */
static bool name_pieces(const struct commit *c, uint32_t i, const struct commit_answer *a)
{
    struct answer_pieces *x = &c->pieces[i];
    uint32_t before = i == 0 ? 0 : c->pieces[i - 1].own;

    if (x->own < BULK_PAYLOADS ||
        (x->own != before && !bulk_name(c->bulk, x->own, bulk_bytes(c->bulk, x->own).len)))
        return false;
    for (int k = 0; k < ROWS_KINDS; k++)
        if (c->rec.flags & COMMIT_ROWS && bulk_bytes(c->bulk, x->apart[k]).len == 0)
            x->apart[k] = 0;
        else if (x->apart[k] > 0 && (x->apart[k] <= BULK_PAYLOADS || a->rows[k].block.len == 0 ||
                                     !bulk_name(c->bulk, x->apart[k], a->rows[k].block.len)))
            return false;
    return true;
}

/* Returns the request's remarks with the answer's warning. Returns NULL if there are none. */
static const struct checkpoint_remarks *make_remarks(struct forest *f, const struct commit *c,
                                                     struct str parse_warning)
{
    struct checkpoint_remarks all = c->remarks, *ret;

    all.parse_warning = forest_text(f, parse_warning);
    if (!all.label.p && !all.parent_label.p && !all.dropped_fields.p && !all.parse_warning.p &&
        !all.diff)
        return NULL;
    ret = arena_alloc(&f->arena, sizeof(*ret));
    *ret = all;
    return ret;
}

static int take_one(struct session *s, struct commit *c, uint32_t i, const struct commit_answer *a,
                    struct err *e)
{
    struct forest *f = &s->forest;

    c->pieces[i] = (struct answer_pieces){.own = a->piece,
                                          .apart = {a->apart[0], a->apart[1]},
                                          .told = a->told,
                                          .told_bytes = a->told_bytes};
    if (c->bulk && !name_pieces(c, i, a))
        return bad(e, "names a piece that is not there");
    if (take_answer(c->answers[i], a, c->rec.flags, f, e) != 0 ||
        take_message(c->answers[i], s, c->rec.call, i, a->message, e) != 0)
        return -1;
    c->answers[i]->remarks = make_remarks(f, c, a->parse_warning);
    if ((uint64_t)c->shared.total + c->answers[i]->n > TOTAL_MAX)
        return bad(e, "too many tokens");
    if (a->mode == DUPLICATE_NONE)
        return 0;
    c->modes[i] = a->mode;
    c->duplicates[i] = find_checkpoint(f, a->duplicate);
    return c->duplicates[i] ? 0 : bad(e, "torn answer");
}

/* Makes the checkpoints, not linked yet. */
static int take_answers(struct session *s, struct arena *tmp, struct commit *c, struct err *e)
{
    uint32_t n = c->rec.n_answers;
    struct checkpoint *all = arena_calloc(&s->forest.arena, n, sizeof(*all));
    struct answer_cursor at = commit_record_answers(&c->rec);
    size_t told = 0;

    c->answers = arena_calloc(tmp, n, sizeof(struct checkpoint *));
    c->pieces = arena_calloc(tmp, n, sizeof(*c->pieces));
    c->duplicates = arena_calloc(tmp, n, sizeof(struct checkpoint *));
    c->modes = arena_calloc(tmp, n, sizeof(*c->modes));
    for (uint32_t i = 0; i < n; i++) {
        struct commit_answer a;

        c->answers[i] = &all[i];
        commit_record_answer(&c->rec, &at, &a);
        if (take_one(s, c, i, &a, e) != 0)
            return -1;
        told += a.told_bytes;
    }
    if (c->bulk && !bulk_name(c->bulk, BULK_TOLD, told))
        return bad(e, "tells what is not there");
    return 0;
}

/* Reads the record. Everything that it names must exist. */
static int take_commit(struct session *s, struct arena *tmp, struct commit *c, struct err *e)
{
    struct forest *f = &s->forest;

    if (!(c->rec.flags & COMMIT_RAW) && find_place(s, tmp, c, e) != 0)
        return -1;
    if (c->rec.flags & COMMIT_PARENT) {
        c->parent = find_checkpoint(f, c->rec.parent);
        if (!c->parent || !c->parent->node || (c->rec.flags & COMMIT_RAW))
            return bad(e, "stands on a checkpoint that does not exist");
    }
    return take_context(f, tmp, c, e) != 0 || take_answers(s, tmp, c, e) != 0 ||
                   take_asked(f, c, e) != 0
               ? -1
               : 0;
}

/* --- making the changes --- */

/* Returns the node of the last message, and makes missing ones. */
static struct message_node *make_place(struct forest *f, struct commit *c)
{
    struct prompt_env *g = c->env ? c->env : forest_env_add(f, &c->env_key, c->ready_env);
    struct message_node *at = c->base ? c->base : &g->root;

    if (c->ready)
        return new_messages_hang(c->ready, c->rec.n_messages, f, at);
    for (uint32_t i = 0; i < c->rec.n_messages; i++)
        at = forest_child(f, at, c->messages[i]);
    return at;
}

/* Links the checkpoint to the node of the answer's own message, as the newest of those with the
 * same message. */
static void link_node(struct session *s, struct checkpoint *t, struct message_node *prompt)
{
    struct message_node *ready = t->node;
    size_t n_before = s->forest.nodes.n;

    t->node = ready ? forest_hang_answer(&s->forest, prompt, ready)
                    : forest_child_of_own(&s->forest, prompt, t->message);
    t->older = t->node->newest;
    t->node->newest = t;
    if (message_is_signed(t->message))
        forest_remember_signed(&s->forest, t->message);
    s->forest.shape += s->forest.nodes.n == n_before; /* an existing node has a new answer */
    if (!ready)
        forest_enter_echo(&s->forest, t->node);
    forest_note_stop(&s->forest, t);
    prompt->samples++;
}

/* Notes in the prompt's nodes by which checkpoint they are reached. Done once for all answers of a
 * call, because there may be many of both. */
static void note_through(struct message_node *prompt, struct checkpoint *t)
{
    for (struct message_node *n = prompt; n->depth > (t->parent ? t->parent->node->depth : 0);
         n = n->parent)
        n->through = t;
}

/* Gives the checkpoint its number and its place in the order, and lets the policy note it. */
static int link_checkpoint(struct session *s, const struct commit *c, uint32_t i,
                           struct message_node *prompt, struct err *e)
{
    struct forest *f = &s->forest;
    struct checkpoint *t = c->answers[i], *duplicate = c->duplicates[i];

    t->id = (uint32_t)f->checkpoints.n;
    t->answer = i;
    t->seq = s->next_seq++;
    t->total = c->shared.total + t->n;
    t->text = t->n == 0 || (t->parent && t->parent->text);
    *vec_push(&f->checkpoints) = t;
    f->tokens += t->n;
    if (t->parent) {
        session_count_leaf(s, t->parent, -1);
        t->parent->children++;
    }
    if (prompt)
        link_node(s, t, prompt);
    else
        t->node = NULL;
    if (t->response_id.p)
        (void)map_set(&f->by_response, response_key(t->response_id), t);
    session_count_leaf(s, t, 1);
    if (prompt && duplicate && !duplicate->hidden && duplicate->node == t->node && duplicate != t) {
        t->cause = CAUSE_SAME_ANSWER;
        same_answer_link(s, t, duplicate, c->modes[i]);
    }
    s->forks[t->cause]++;
    if (s->residence == RESIDENT)
        session_count_fork(s->store, t->cause);
    if (!prompt || prompt->env->pool.len || !s->options.policy->commit)
        return 0;
    /* Further answers of one call start chains of their own. */
    return s->options.policy->commit(s, t, i == 0 ? c->rec.chain : UINT32_MAX,
                                     i == 0 && (c->rec.flags & COMMIT_ROLLBACK), e);
}

/* Makes a payload of a piece of the bulk. A piece without any fragment is empty. */
static struct payload *take_piece(struct session *s, const struct commit *c, uint32_t piece,
                                  bool fixed)
{
    if (bulk_bytes(c->bulk, piece).len == 0)
        return payload_new(s, c->call.number, 0);
    return payload_of_piece(s, c->bulk, piece, fixed);
}

/* Makes the payload with the numbers of the context and of the first answers: from the record or
 * from the bulk. */
static struct payload *make_first(struct session *s, const struct commit *c)
{
    struct payload *p;

    if (c->bulk)
        return take_piece(s, c, BULK_PAYLOADS, false);
    p = payload_new(s, c->call.number, commit_record_bulk(&c->rec, NULL));
    (void)commit_record_bulk(&c->rec, p->bytes);
    return p;
}

/* Keeps the replay texts of the answers in memory, so that a stored answer is read without a
 * recall. */
static void take_told(struct session *s, const struct commit *c)
{
    const struct payload *told = c->bulk && bulk_bytes(c->bulk, BULK_TOLD).len > 0
                                     ? take_piece(s, c, BULK_TOLD, true)
                                     : NULL;
    size_t at = 0;

    for (uint32_t i = 0; i < c->rec.n_answers; i++) {
        const struct answer_pieces *x = &c->pieces[i];

        if (x->told_bytes > 0)
            c->answers[i]->told = str_of(told->bytes + at, x->told_bytes);
        else if (x->told.p)
            c->answers[i]->told = forest_str(&s->forest, x->told);
        at += x->told_bytes;
    }
}

static int make_payloads(struct session *s, struct commit *c, struct context_run *run,
                         struct err *e)
{
    struct forest *f = &s->forest;
    size_t bulk =
        c->bulk ? bulk_bytes(c->bulk, BULK_PAYLOADS).len : commit_record_bulk(&c->rec, NULL);
    struct payload *p;
    uint32_t piece = BULK_PAYLOADS;
    size_t at;

    if (bulk + (uint64_t)c->rec.common * sizeof(int32_t) > UINT32_MAX)
        return bad(e, "too large");
    forest_run(f, run, c->run ? &c->run->context : NULL, c->rec.common, c->rec.n_context);
    p = make_first(s, c);
    run->payload = p;
    at = run->n * sizeof(int32_t);
    f->top_id = take_top(f->top_id, (const int32_t *)(const void *)p->bytes, run->n);
    for (uint32_t i = 0; i < c->rec.n_answers; i++) {
        const struct answer_pieces *x = &c->pieces[i];
        struct checkpoint *t = c->answers[i];

        if (c->bulk && x->own != piece) {
            piece = x->own;
            p = take_piece(s, c, piece, false);
            at = 0;
        }
        for (int k = 0; k < ROWS_KINDS; k++)
            if (x->apart[k] > 0)
                t->rows[k].apart = take_piece(s, c, x->apart[k], false);
        at = take_bulk(t, p, at);
        f->top_id = take_top(f->top_id, checkpoint_ids(t), t->n);
        t->context = *run;
        payload_lead_new(t);
    }
    take_told(s, c);
    return 0;
}

/* Makes the payloads first, because they may be too large, and then the links. */
static int carry_out(struct session *s, struct commit *c, struct err *e)
{
    struct forest *f = &s->forest;
    struct message_node *prompt;
    struct context_run run;

    if (make_payloads(s, c, &run, e) != 0)
        return -1;
    prompt = c->rec.flags & COMMIT_RAW ? NULL : make_place(f, c);
    c->call.first_checkpoint = (uint32_t)f->checkpoints.n;
    c->call.n_checkpoints = c->rec.n_answers;
    s->trimmed += c->shared.trim;
    for (uint32_t i = 0; i < c->rec.n_answers; i++) {
        c->answers[i]->call = (uint32_t)f->calls.n;
        if (link_checkpoint(s, c, i, prompt, e) != 0)
            return -1;
    }
    forest_enter_calls(f, c->call.first_checkpoint);
    if (prompt && c->rec.n_answers > 0)
        note_through(prompt, c->answers[c->rec.n_answers - 1]);
    return 0;
}

static struct key_entry *entry_of_key(struct forest *f, const struct call_record *call)
{
    struct buf said = {0};
    struct key_entry *ret;

    call_key_put(&said, call->body_hash, call->key);
    ret = map_get(&f->by_key, buf_str(&said));
    if (!ret) {
        ret = arena_alloc(&f->arena, sizeof(*ret) + said.len);
        memcpy(ret->said, said.p, said.len);
        (void)map_set(&f->by_key, str_of(ret->said, said.len), ret);
    }
    buf_done(&said);
    return ret;
}

/* Puts the call in order of its number: calls are numbered as they begin and stored as they end, so
 * the place of the last one is near the end. */
static void place_number(struct forest *f)
{
    uint32_t added = (uint32_t)f->calls.n - 1;
    size_t at = f->by_number.n;

    (void)vec_push(&f->by_number);
    for (; at > 0 && f->calls.at[f->by_number.at[at - 1]]->number > f->calls.at[added]->number;
         at--)
        f->by_number.at[at] = f->by_number.at[at - 1];
    f->by_number.at[at] = added;
}

static void add_call(struct session *s, const struct call_record *call)
{
    struct forest *f = &s->forest;
    struct call_record *added = arena_alloc(&f->arena, sizeof(*added));
    const struct call_record *same;

    *added = *call;
    same = map_set(&f->by_hash, body_hash_key(added->body_hash), added);
    *vec_push(&f->calls) = added;
    place_number(f);
    if (call->key.p) {
        entry_of_key(f, call)->newest = (uint32_t)f->calls.n;
        added->newest_plain = same ? same->newest_plain : 0;
    } else {
        added->newest_plain = (uint32_t)f->calls.n;
    }
    if (s->next_call <= call->number)
        s->next_call = call->number + 1;
}

/* Checks that a chain's continuation fits the chain. */
static int check_chain(const struct session *s, const struct commit *c, struct err *e)
{
    const struct chain *chain;

    if (s->options.policy != &policy_chains)
        return c->rec.flags & (COMMIT_CHAIN | COMMIT_ROLLBACK) ? bad(e, "names a chain") : 0;
    if (!(c->rec.flags & COMMIT_CHAIN))
        return c->rec.flags & COMMIT_ROLLBACK ? bad(e, "rolls nothing back") : 0;
    if (c->rec.chain >= s->chains.n || s->chains.at[c->rec.chain]->closed)
        return bad(e, "names a chain that is not open");
    chain = s->chains.at[c->rec.chain];
    if (!(c->rec.flags & COMMIT_EXHAUSTED) &&
        c->parent != (c->rec.flags & COMMIT_ROLLBACK ? chain->head->parent : chain->head))
        return bad(e, "does not continue its chain");
    return 0;
}

/* Applies a call without space: closes its chain. */
static int close_chain(struct session *s, struct commit *c, struct err *e)
{
    c->call.exhausted = true;
    c->call.first_checkpoint = (uint32_t)s->forest.checkpoints.n;
    if (c->rec.kept && !(c->rec.flags & COMMIT_CHAIN))
        return bad(e, "torn");
    if (check_chain(s, c, e) != 0)
        return -1;
    return c->rec.flags & COMMIT_CHAIN ? chains_close(s, c->rec.chain, c->rec.kept, e) : 0;
}

/* Sets what the answers have in common. The total is that of the ids before them
 * (link_checkpoint). */
static void share(struct checkpoint *t, const struct commit *c, uint64_t now_ms)
{
    const struct checkpoint *shared = &c->shared;

    t->n_context = shared->n_context;
    t->n_close = shared->n_close;
    t->trim = shared->trim;
    t->sent = shared->sent;
    t->cause = shared->cause;
    t->parent = c->parent;
    t->depth = c->parent ? c->parent->depth + 1 : 1;
    t->at_ms = now_ms;
}

/* Applies the record of a call with answers. */
static int apply_answers(struct session *s, struct commit *c, uint64_t now_ms, struct err *e)
{
    struct arena tmp = {0};
    int rc = take_commit(s, &tmp, c, e);

    if (rc == 0)
        rc = check_chain(s, c, e);
    for (uint32_t i = 0; rc == 0 && i < c->rec.n_answers; i++)
        share(c->answers[i], c, now_ms);
    if (rc == 0)
        rc = carry_out(s, c, e);
    if (rc == 0)
        session_sums_add(s, c->answers, c->rec.n_answers, now_ms);
    arena_done(&tmp);
    return rc;
}

/* Checks that no record before was lost, because records name checkpoints, nodes, environments and
 * calls by number, and the numbers would then be of others. */
static int check_order(const struct session *s, const struct commit_record *r, struct err *e)
{
    size_t n = s->forest.calls.n;

    if (!(r->flags & COMMIT_AFTER) || r->calls_before == n)
        return 0;
    return err_set(e, ERR_IO,
                   "session record: it follows %u calls, and the session has %zu: one is lost",
                   r->calls_before, n);
}

int session_apply_commit(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e)
{
    struct commit c = {0};

    if (commit_record_read(r, &c.rec, e) != 0)
        return -1;
    if (check_order(s, &c.rec, e) != 0)
        return -1;
    if ((c.rec.flags & (COMMIT_BULK | COMMIT_EXHAUSTED)) == COMMIT_BULK) {
        c.bulk = session_bulk(s, c.rec.call);
        if (!c.bulk || !commit_record_attach(&c.rec, c.bulk))
            return bad(e, "its bulk is not there");
    }
    c.call = (struct call_record){.number = c.rec.call,
                                  .body_hash = {c.rec.body_hash[0], c.rec.body_hash[1]},
                                  .max_tokens = c.rec.max_tokens,
                                  .temperature = c.rec.temperature,
                                  .prompt_tokens = c.rec.prompt_tokens,
                                  .key = forest_str(&s->forest, c.rec.key),
                                  .at_ms = now_ms};
    if ((c.rec.flags & COMMIT_EXHAUSTED ? close_chain(s, &c, e)
                                        : apply_answers(s, &c, now_ms, e)) != 0)
        return -1;
    add_call(s, &c.call);
    session_drop_bulk(s, c.call.number);
    s->updated_ms = now_ms;
    if (s->residence != LOADING)
        s->idle_ms = now_ms;
    session_call_recorded(s, c.call.number);
    return 0;
}
