/* Writes a commit record from a session and answers, in the layout of commit.h; apply.c reads it.
 * Changes nothing: the record is journaled first (ledger_write), then applied.
 *
 * The plan of a call was made before the engine was asked, and other calls may have been recorded
 * since. plan_renew updates the plan for what they stored, and a policy may refuse the commit
 * (session_check_commit). Large values are written as references: known messages by their node,
 * shared context by the checkpoint that begins with it (plan_shared_run), the request's data by the
 * earlier call with the same (put_asked). */

#include "worker/session/record/commit.h"

#include <stdlib.h>
#include <string.h>

#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/record/record.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

/* --- the same answer, if a request was sent twice --- */

/* Reports whether checkpoints continue it, or running calls will. */
static bool in_use(const struct session *s, const struct checkpoint *t)
{
    const struct plan *p;

    if (t->children)
        return true;
    LIST_EACH(&s->plans, p, struct plan, item)
        if (p->parent == t && !p->look)
            return true;
    return false;
}

/* Finds the node of the answer's message below the plan's prompt, or NULL. A long message must have
 * been read before. */
static struct message_node *find_node(const struct plan *p, const struct json *message)
{
    struct forest *f = &p->session->forest;
    const struct new_messages *ready = ready_answers_get(p->made.answers, 0);
    struct arena tmp = {0};
    struct message m;
    struct message_node *n;

    if (ready)
        return forest_find_child(f, p->prompt, &ready->nodes[0]->msg);
    message_read(&m, message, &f->matcher, &tmp);
    n = forest_find_child(f, p->prompt, &m);
    arena_done(&tmp);
    return n;
}

/* Returns the checkpoint of this same answer, with this message, if it was recorded at
 * this same position before: with idempotent_retry a client that sent a request twice gets one
 * checkpoint. Returns NULL if there is none, or if the policy is not tree. *ret_in_use: some
 * checkpoint continues it. */
static struct checkpoint *plan_duplicate(const struct plan *p, const struct json *message,
                                         bool *ret_in_use)
{
    const struct session *s = p->session;
    struct message_node *n;

    if (!s->options.idempotent_retry || s->options.policy != &policy_tree || !p->chat.messages ||
        !p->prompt || p->walk.n_matched < p->walk.n)
        return NULL;
    n = find_node(p, message);
    for (struct checkpoint *t = n ? n->newest : NULL; t; t = t->older)
        if (t->parent == p->parent) {
            *ret_in_use = in_use(s, t);
            return t;
        }
    return NULL;
}

/* --- commit --- */

void record_begin(struct buf *b, enum record_type type, struct str id, uint64_t now_ms)
{
    uint64_t version = type == RECORD_DOUBT ? RECORD_VERSION : RECORD_VERSION_USUAL;

    record_put_head(b, &(struct record_head){type, version, id, now_ms});
}

/* Reports whether the new messages are in fragments before the record. */
static bool has_texts_apart(const struct plan *p)
{
    return p->bulk.written && plan_new_texts(p).p;
}

/* Writes environment and messages: numbers of what is stored, texts of what is new. */
static void put_place(struct buf *b, const struct plan *p)
{
    uint32_t n = p->walk.n - p->walk.n_matched;
    struct str ready;

    if (p->env) {
        record_put_u(b, p->env->id);
    } else {
        ready = plan_env_texts(p);
        if (ready.p) {
            buf_add_str(b, ready);
        } else {
            record_put_json(b, p->chat.tools);
            record_put_json(b, p->chat.kwargs);
        }
        if (p->pool.len)
            record_put_str(b, p->pool);
    }
    if (p->prompt)
        record_put_u(b, p->prompt->id);
    record_put_u(b, n);
    ready = plan_new_texts(p);
    if (has_texts_apart(p)) {
        record_put_u(b, p->made.messages->texts.len - ready.len - p->bulk.texts_from);
        return;
    }
    if (ready.p) {
        buf_add_str(b, ready);
        return;
    }
    for (uint32_t i = p->walk.n_matched; i < p->walk.n; i++)
        record_put_json(b, &p->chat.messages->items[i]);
}

/* Returns the hash of the ids that the engine was asked with. Earlier ids are not read again,
 * because the parent checkpoint has their hash. */
static uint64_t hash_sent(const struct plan *p)
{
    const struct checkpoint *parent = p->parent;
    const struct token_parts *all = &p->pub.prompt;
    size_t from = parent && parent->sent ? checkpoint_start(parent) : 0;
    uint64_t hash = from ? parent->sent : IDS_HASH_NONE;

    for (size_t k = 0; k < all->n_parts; k++) {
        struct token_span part = all->parts[k];
        size_t skipped = MIN_OF(from, part.n);

        from -= skipped;
        hash = ids_hash(hash, part.at + skipped, part.n - skipped);
    }
    return hash;
}

/* Writes the tokens between parent and answers, and the cause of the call's position. */
static void put_context(struct buf *b, const struct plan *p)
{
    struct token_span rest = plan_own_context(p, p->bulk.common);

    record_put_u(b, p->trim);
    record_put_u(b, p->n_close);
    if (!p->text)
        record_put_u64(b, hash_sent(p));
    if (p->bulk.run) {
        record_put_u(b, p->bulk.run->id);
        record_put_u(b, p->bulk.common);
    }
    if (p->bulk.written)
        record_put_u(b, rest.n);
    else
        record_put_ids(b, rest);
    record_put_u(b, p->pub.cause);
    record_put_u(b, p->pub.diff_message);
    record_put_str(b, p->pub.diff_field);
    record_put_str(b, p->pub.diff_stored);
    record_put_str(b, p->pub.diff_request);
    record_put_str(b, p->label);
    record_put_str(b, p->parent_label);
    if (p->dropped_fields.p)
        record_put_str(b, p->dropped_fields);
}

/* --- answers --- */

/* Returns the optional parts that some answer has. */
static unsigned parts_of(const struct session_answer *answers, size_t n)
{
    unsigned parts = 0;

    for (size_t i = 0; i < n; i++) {
        if (answers[i].odds.p)
            parts |= COMMIT_ODDS;
        if (answers[i].drifted_tokens)
            parts |= COMMIT_DRIFT;
        if (answers[i].rows[ROWS_INDEXER].block.p)
            parts |= COMMIT_INDEXER;
        if (answers[i].asked_basis.p)
            parts |= COMMIT_ASKED;
    }
    return parts;
}

/* Writes a text, or only its length if the bytes are in fragments before the record. */
static void put_bulky(const struct plan *p, struct buf *b, struct str text)
{
    if (p->bulk.written)
        record_put_u(b, text.p ? text.len + 1 : 0);
    else
        record_put_str(b, text);
}

static void put_rows(const struct plan *p, struct buf *b, const struct token_rows *r,
                     uint32_t apart)
{
    put_bulky(p, b, r->block);
    if (p->bulk.written && r->block.p)
        record_put_u(b, apart);
    record_put_u(b, r->from);
    record_put_u(b, r->rows);
    record_put_u(b, r->layers);
    record_put_u(b, r->topk);
}

static void put_message(const struct plan *p, struct buf *b, const struct session_answer *a,
                        const struct answer_place *place)
{
    bool apart = place && a->message_text.p;

    if (p->bulk.written)
        record_put_u(b, apart);
    if (apart) {
        record_put_u(b, place->text_at);
        record_put_u(b, a->message_text.len);
    } else if (a->message_text.p) {
        record_put_str(b, a->message_text);
    } else {
        record_put_json(b, a->message);
    }
}

/* Writes an answer. `alone`: it is the call's only one; only such answers are looked up as
 * duplicates. parts: the optional parts. */
static void put_answer(const struct plan *p, struct buf *b, const struct session_answer *a,
                       const struct answer_place *place, unsigned parts, bool alone)
{
    bool in_use = false;
    struct checkpoint *duplicate = alone ? plan_duplicate(p, a->message, &in_use) : NULL;
    enum commit_duplicate mode = in_use ? DUPLICATE_KEEP : DUPLICATE_REPLACE;

    if (place) {
        record_put_u(b, place->piece);
        record_put_u(b, a->ids.n);
    } else {
        record_put_ids(b, a->ids);
    }
    record_put_u(b, a->logprobs != NULL);
    if (a->logprobs && !place)
        record_put_floats(b, a->logprobs, a->ids.n);
    record_put_u(b, a->n_versions);
    for (size_t i = 0; i < a->n_versions; i++) {
        record_put_str(b, a->versions[i].version);
        record_put_u(b, a->versions[i].start);
        record_put_u(b, a->versions[i].end);
    }
    record_put_u(b, a->cut);
    record_put_str(b, a->finish_reason);
    put_message(p, b, a, place);
    record_put_str(b, a->response_id);
    record_put_str(b, a->parse_warning);
    put_rows(p, b, &a->rows[ROWS_EXPERTS], place ? place->apart[ROWS_EXPERTS] : 0);
    record_put_u(b, a->queue_us);
    record_put_u(b, a->engine_us);
    record_put_u(b, a->gateway_us);
    record_put_u(b, duplicate ? mode : DUPLICATE_NONE);
    if (duplicate)
        record_put_u(b, duplicate->id);
    record_put_str(b, a->logprob_basis);
    record_put_u(b, a->scored_tokens);
    record_put_u(b, a->cached_told ? (uint64_t)a->cached_tokens + 1 : 0);
    if (parts & COMMIT_ODDS)
        put_bulky(p, b, a->odds);
    if (parts & COMMIT_DRIFT)
        record_put_u(b, a->drifted_tokens);
    if (parts & COMMIT_INDEXER)
        put_rows(p, b, &a->rows[ROWS_INDEXER], place ? place->apart[ROWS_INDEXER] : 0);
    if (parts & COMMIT_ASKED)
        record_put_str(b, a->asked_basis);
    put_bulky(p, b, a->told);
}

static bool is_text(struct str a, struct str b)
{
    return a.len == b.len && (a.p == b.p || str_eq(a, b));
}

/* Reports whether the instructions are the text of the conversation's first message, new or stored,
 * so that they can be read from there. */
static bool asks_by_prompt(const struct plan *p)
{
    const struct json *first = json_at(p->chat.messages, 0);

    if (!p->asked_brief.p || !str_eq_c(json_string(json_get(first, "role")), "system") ||
        !is_text(json_string(json_get(first, "content")), p->instructions))
        return false;
    return p->walk.n_matched == 0 || is_text(node_text(walk_node(&p->walk, 1)), p->instructions);
}

/* Limits of the search: so many calls back, because agents of a session take turns, and so many
 * bytes, because texts of equal length that differ at their ends take long to compare. */
enum { ASKED_LOOKED_AT = 32, ASKED_COMPARED = 2 << 20 };

/* Writes the request's data, or a reference to a recent call with the same. */
static void put_asked(struct buf *b, const struct forest *f, struct str asked)
{
    size_t oldest = f->calls.n > ASKED_LOOKED_AT ? f->calls.n - ASKED_LOOKED_AT : 0;
    size_t compared = 0;
    const char *last = NULL;

    for (size_t i = f->calls.n; asked.p && i-- > oldest && compared < ASKED_COMPARED;) {
        struct str other = f->calls.at[i]->asked;

        if (!other.p || other.p == last || other.len != asked.len)
            continue;
        if (str_eq(other, asked)) {
            record_put_u(b, i + 2);
            return;
        }
        last = other.p;
        compared += asked.len;
    }
    record_put_u(b, asked.p != NULL);
    if (asked.p)
        record_put_str(b, asked);
}

static void put_answers(struct buf *b, const struct plan *p, const struct session_answer *answers,
                        size_t n, unsigned parts)
{
    record_put_u(b, n);
    for (size_t i = 0; i < n; i++)
        put_answer(p, b, &answers[i], p->bulk.written ? &p->bulk.places[i] : NULL, parts, n == 1);
    put_asked(b, &p->session->forest, parts & COMMIT_ASKED_BRIEF ? p->asked_brief : p->asked);
}

/* Returns the record's flags: its optional parts, and its kind. */
static unsigned flags_of(const struct plan *p, unsigned parts)
{
    unsigned flags = p->pub.exhausted ? 0 : parts;

    if (p->text)
        flags |= COMMIT_TEXT;
    else if (!p->pub.exhausted)
        flags |= COMMIT_SENT;
    if (p->key.p)
        flags |= COMMIT_KEY;
    if (p->session->forest.calls.n > 0)
        flags |= COMMIT_AFTER;
    if (p->dropped_fields.p && !p->pub.exhausted)
        flags |= COMMIT_DROPPED;
    if (has_texts_apart(p))
        flags |= COMMIT_TEXTS;
    if (!p->chat.messages)
        flags |= COMMIT_RAW;
    if (p->rollback)
        flags |= COMMIT_ROLLBACK;
    if (p->pub.exhausted)
        flags |= COMMIT_EXHAUSTED;
    if (p->bulk.rows_apart)
        flags |= COMMIT_ROWS;
    if (p->kept)
        flags |= COMMIT_KEPT;
    if (p->parent)
        flags |= COMMIT_PARENT;
    if (p->chain)
        flags |= COMMIT_CHAIN;
    if (p->chat.messages && !p->env)
        flags |= p->pool.len ? COMMIT_NEW_ENV | COMMIT_POOL : COMMIT_NEW_ENV;
    if (p->prompt)
        flags |= COMMIT_BASE;
    if (p->bulk.run)
        flags |= COMMIT_RUN;
    if (p->bulk.written)
        flags |= COMMIT_BULK;
    return flags;
}

/* Checks again, because the session may have ended since the plan was made, or a policy's head
 * moved. */
int session_check_commit(const struct session_plan *pub, struct err *e)
{
    const struct plan *p = (const struct plan *)(const void *)pub; /* pub is the first member */
    const struct session *s = p->session;

    if (s->phase == SESSION_FINALIZED || s->phase == SESSION_ABORTED)
        return err_set(e, ERR_SESSION_ENDED, "the session ended during the call");
    return plan_policy(p)->check && p->chat.messages ? plan_policy(p)->check(s, p, e) : 0;
}

static int check_answers(const struct plan *p, const struct session_answer *answers, size_t n,
                         struct err *e)
{
    if (n == 0)
        return err_set(e, ERR_ENGINE_INVALID, "the engine gave no answer");
    for (size_t i = 0; i < n && !p->pub.exhausted; i++)
        if (answers[i].ids.n == 0 && !answers[i].upstream)
            return err_set(e, ERR_ENGINE_INVALID, "the engine answered without a token");
    return 0;
}

/* --- answers of upstreams that were asked with messages --- */

/* Reports whether the answers' ids can be kept: the ids of their prompt are known and the same for
 * all, and the policy can place them. */
static bool has_ids(const struct plan *p, const struct session_answer *answers, size_t n)
{
    const struct policy *policy = plan_policy(p);
    struct token_span prompt = answers[0].prompt;

    for (size_t i = 0; i < n; i++) {
        struct token_span own = answers[i].prompt;

        if (answers[i].ids.n == 0 || own.n != prompt.n ||
            (own.at != prompt.at && memcmp(own.at, prompt.at, prompt.n * sizeof(*own.at)) != 0))
            return false;
    }
    return prompt.n > 0 &&
           ((p->parent && checkpoint_begins(p->parent, prompt.at, prompt.n)) || !p->chat.messages ||
            policy == &policy_tree || policy == &policy_timelines);
}

/* Drops the ids and everything that is stored per token. */
static void drop_ids(struct session_answer *a)
{
    a->ids = (struct token_span){0};
    a->logprobs = NULL;
    a->n_versions = 0;
    a->odds = a->logprob_basis = a->asked_basis = (struct str){0};
    memset(a->rows, 0, sizeof(a->rows));
    a->drifted_tokens = a->scored_tokens = 0;
}

/* Finds the position of answers whose prompt the upstream rendered: they continue stored tokens if
 * their prompt starts with these, else they begin a new tree. Answers without ids only have their
 * place among the messages. */
static void settle_upstream(struct plan *p, struct session_answer *answers, size_t n)
{
    p->trim = p->n_close = 0;
    p->text = !has_ids(p, answers, n);
    for (size_t i = 0; i < n && p->text; i++)
        drop_ids(&answers[i]);
    p->pub.prompt = (struct token_parts){0};
    if (!p->text)
        p->pub.prompt = plan_one_part(p, answers[0].prompt);
    p->n_context = (uint32_t)p->pub.prompt.n;
    if (p->text || !p->parent)
        return;
    if (checkpoint_begins(p->parent, answers[0].prompt.at, answers[0].prompt.n))
        p->n_context -= p->parent->total;
    else
        p->parent = NULL;
}

/* Looks up the plan's new environment and new messages, which other calls may have stored since.
 * The parent checkpoint does not change. */
void plan_renew(struct plan *p)
{
    struct forest *f = &p->session->forest;
    struct walk *w = &p->walk;

    if (!p->chat.messages)
        return;
    if (!p->env)
        p->env = forest_env(f, &p->env_key);
    while (p->env && w->n_matched < w->n) {
        struct message_node *at = p->prompt ? p->prompt : &p->env->root;
        const struct message *ready = plan_new_message(p);
        struct message m;

        if (!ready)
            message_read(&m, &p->chat.messages->items[w->n_matched], &f->matcher, p->arena);
        at = forest_find_echo(f, at, ready ? ready : &m);
        if (!at)
            return;
        w->n_matched++;
        w->last = p->prompt = at;
    }
}

/* Reserves the space of a record at once, because a record that grows is moved, and its pages are
 * mapped anew. */
static void reserve(struct buf *record, const struct plan *p, const struct session_answer *answers,
                    size_t n)
{
    enum { BESIDES = 512 };

    size_t bytes = p->bulk.written ? 0 : session_bulk_bytes(&p->pub, answers, n);

    for (size_t i = 0; i < n; i++)
        if (!answers[i].message_text.p)
            bytes += json_text_bytes(answers[i].message, SIZE_MAX);
    (void)buf_reserve(record, bytes + BESIDES);
}

/* Writes only the chain of a call without space. */
static void put_exhausted(struct buf *b, const struct plan *p)
{
    if (p->chain)
        record_put_u(b, p->chain->id);
    if (p->kept)
        record_put_u(b, p->kept);
}

/* Decides whether the answers' ids are kept. Done once for a plan, because a second time would
 * change nothing but compare long prompts again. */
static void settle(struct plan *p, struct session_answer *answers, size_t n)
{
    if (p->settled)
        return;
    p->settled = true;
    p->text = false;
    if (answers[0].upstream && !p->pub.exhausted)
        settle_upstream(p, answers, n);
}

void session_settle_answers(struct session_plan *pub, struct session_answer *answers, size_t n)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct err why;

    if (pub->exhausted || n == 0 || session_check_commit(pub, &why) != 0)
        return;
    settle(p, answers, n);
}

void plan_settle_run(struct plan *p)
{
    if (p->bulk.settled)
        return;
    p->bulk.run = p->pub.exhausted ? NULL : plan_shared_run(p, &p->bulk.common);
    if (!p->bulk.run)
        p->bulk.common = 0;
}

bool session_bulk_record(struct session_plan *pub, struct session_answer *answers, size_t n,
                         size_t max_bytes, uint64_t now_ms, struct buf *record)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct err why;

    if (pub->exhausted || check_answers(p, answers, n, &why) != 0 ||
        session_check_commit(pub, &why) != 0)
        return false;
    settle(p, answers, n);
    return plan_bulk_record(p, answers, n, max_bytes, now_ms, record);
}

/* Returns -1 with e if the call cannot be recorded; the call has failed then. */
int session_commit_record(struct session_plan *pub, struct session_answer *answers, size_t n,
                          uint64_t now_ms, struct buf *record, struct err *e)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    unsigned parts;

    if (check_answers(p, answers, n, e) != 0 || session_check_commit(pub, e) != 0)
        return -1;
    plan_renew(p);
    settle(p, answers, n);
    parts = parts_of(answers, n);
    if (!p->pub.exhausted && asks_by_prompt(p))
        parts |= COMMIT_ASKED_BRIEF;
    plan_settle_run(p);
    reserve(record, p, answers, n);
    record_begin(record, RECORD_COMMIT, p->session->id, now_ms);
    record_put_u(record, p->pub.call);
    record_put_u64(record, p->body_hash[0]);
    record_put_u64(record, p->body_hash[1]);
    record_put_u(record, p->max_tokens > 0 ? (uint64_t)p->max_tokens : 0);
    record_put_floats(record, &p->temperature, 1);
    record_put_u(record, flags_of(p, parts));
    record_put_u(record, p->text ? answers[0].prompt_tokens : p->pub.prompt.n);
    if (p->key.p)
        record_put_str(record, p->key);
    if (p->session->forest.calls.n > 0)
        record_put_u(record, p->session->forest.calls.n);
    if (p->pub.exhausted) {
        put_exhausted(record, p);
        return 0;
    }
    if (p->chat.messages)
        put_place(record, p);
    if (p->parent)
        record_put_u(record, p->parent->id);
    if (p->chain)
        record_put_u(record, p->chain->id);
    put_context(record, p);
    put_answers(record, p, answers, n, parts);
    return 0;
}
