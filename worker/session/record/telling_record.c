/* Writes the record of a call (telling_record.h). Because the record never changes, only the
 * position is kept between two steps, and the payloads that a stage reads. These are read back
 * before the stage, in steps, and held while it writes. */
#include "worker/session/record/telling_record.h"

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

/* So many ids, or bytes of messages, take about a tenth of a millisecond. */
enum { STEP_IDS = 4096, STEP_MESSAGES = 64, STEP_TEXT = 32 << 10 };

int record_recall(struct recall **r, struct session *s, const struct checkpoint *t, bool path,
                  struct err *e)
{
    if (!*r) {
        *r = recall_new(s);
        if (path)
            recall_path(*r, t);
        else
            recall_checkpoint(*r, t);
    }
    return recall_step(*r, RECALL_STEP, e);
}

void record_release(struct recall **r)
{
    recall_free(*r);
    *r = NULL;
}

void write_path_ids(struct json_out *o, const struct checkpoint *t, size_t from, size_t n)
{
    int32_t ids[256];

    for (size_t end = from + n; from < end;) {
        size_t some = MIN_OF(end - from, ARRAY_LEN(ids));

        checkpoint_copy_part(t, (uint32_t)from, (uint32_t)some, ids);
        for (size_t i = 0; i < some; i++)
            json_out_i64(o, ids[i]);
        from += some;
    }
}

/* Returns the first of the call's answers, or NULL if the call was exhausted. */
static const struct checkpoint *first_of(const struct session *s, const struct call_record *c)
{
    return c->n_checkpoints ? s->forest.checkpoints.at[c->first_checkpoint] : NULL;
}

static void enter_stage(struct record_telling *r, enum record_stage stage)
{
    record_release(&r->recall);
    r->stage = stage;
    r->at = 0;
}

/* Writes the head of a call. Completions have no messages. */
static void write_call_head(struct record_telling *r, struct json_out *o,
                            const struct call_record *c, const struct checkpoint *first)
{
    json_out_obj(o);
    json_out_member_i64(o, "call", c->number);
    json_out_member_seconds(o, "timestamp", c->at_ms);
    json_out_member_bool(o, "exhausted", c->exhausted);
    json_out_member_i64(o, "prompt_tokens", c->prompt_tokens);
    if (c->max_tokens)
        json_out_member_i64(o, "max_tokens", (uint64_t)c->max_tokens);
    if (!first) {
        json_out_member_arr(o, "answers");
        enter_stage(r, RECORD_TELLS_END);
    } else if (first->node) {
        json_out_member_obj(o, "request");
        json_out_member_arr(o, "messages");
        r->messages = node_messages(first->node->parent, 0, &r->arena);
        enter_stage(r, RECORD_TELLS_MESSAGES);
    } else {
        enter_stage(r, RECORD_TELLS_REQUEST_END);
    }
}

static void write_messages_step(struct record_telling *r, struct json_out *o)
{
    size_t had = o->b->len;

    for (int i = 0; i < STEP_MESSAGES && r->at < r->messages->n; i++) {
        json_out_value(o, &r->messages->items[r->at++]);
        if (o->b->len - had > STEP_TEXT)
            break;
    }
    if (r->at < r->messages->n)
        return;
    json_out_end_arr(o);
    enter_stage(r, RECORD_TELLS_REQUEST_END);
}

static void write_request_end(struct record_telling *r, struct json_out *o,
                              const struct message_node *node)
{
    if (node && node->env->tools)
        json_out_member_value(o, "tools", node->env->tools);
    if (node && node->env->kwargs)
        json_out_member_value(o, "chat_template_kwargs", node->env->kwargs);
    if (node)
        json_out_end_obj(o);
    json_out_member_arr(o, "prompt_ids");
    enter_stage(r, RECORD_TELLS_PROMPT);
}

static int write_prompt_step(struct record_telling *r, struct json_out *o, struct session *s,
                             const struct checkpoint *first, struct err *e)
{
    size_t all = checkpoint_start(first), n = MIN_OF(all - r->at, (size_t)STEP_IDS);
    int rc = record_recall(&r->recall, s, first, true, e);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    write_path_ids(o, first, r->at, n);
    r->at += n;
    if (r->at < all)
        return 0;
    json_out_end_arr(o);
    json_out_member_arr(o, "answers");
    enter_stage(r, RECORD_TELLS_ANSWER);
    return 0;
}

static void write_answer_row(struct record_telling *r, struct json_out *o,
                             const struct checkpoint *t)
{
    json_out_obj(o);
    json_out_member_str(o, "response_id", t->response_id);
    json_out_member_str(o, "finish_reason", t->finish_reason);
    json_out_member_value(o, "message", t->message);
    json_out_member_arr(o, "output_ids");
    enter_stage(r, RECORD_TELLS_OUTPUT);
}

static int write_output_step(struct record_telling *r, struct json_out *o, struct session *s,
                             const struct checkpoint *t, struct err *e)
{
    size_t end = MIN_OF(r->at + STEP_IDS, (size_t)t->n);
    int rc = record_recall(&r->recall, s, t, false, e);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    for (; r->at < end; r->at++)
        json_out_i64(o, checkpoint_ids(t)[r->at]);
    if (r->at == t->n)
        enter_stage(r, RECORD_TELLS_ANSWER_END);
    return 0;
}

static void write_answer_end(struct record_telling *r, struct json_out *o,
                             const struct call_record *c, const struct checkpoint *t)
{
    json_out_end_arr(o);
    json_out_member_i64(o, "queue_us", t->queue_us);
    json_out_member_i64(o, "engine_us", t->engine_us);
    json_out_member_i64(o, "gateway_us", t->gateway_us);
    json_out_end_obj(o);
    enter_stage(r, ++r->answer < c->n_checkpoints ? RECORD_TELLS_ANSWER : RECORD_TELLS_END);
}

int record_write_step(struct record_telling *r, struct json_out *o, struct session *s, size_t call,
                      struct err *e)
{
    const struct call_record *c = &s->forest.calls.at[call];
    const struct checkpoint *first = first_of(s, c), *t;

    if (r->stage == RECORD_TELLS_HEAD) {
        write_call_head(r, o, c, first);
        return 0;
    }
    if (r->stage == RECORD_TELLS_END) {
        json_out_end_arr(o);
        json_out_end_obj(o);
        record_write_done(r);
        return 1;
    }
    CHECK(first);
    t = s->forest.checkpoints.at[first->id + r->answer];
    switch (r->stage) {
    case RECORD_TELLS_MESSAGES:
        write_messages_step(r, o);
        return 0;
    case RECORD_TELLS_REQUEST_END:
        write_request_end(r, o, first->node);
        return 0;
    case RECORD_TELLS_PROMPT:
        return write_prompt_step(r, o, s, first, e);
    case RECORD_TELLS_ANSWER:
        write_answer_row(r, o, t);
        return 0;
    case RECORD_TELLS_OUTPUT:
        return write_output_step(r, o, s, t, e);
    default:
        write_answer_end(r, o, c, t);
        return 0;
    }
}

void record_write_done(struct record_telling *r)
{
    record_release(&r->recall);
    arena_done(&r->arena);
    *r = (struct record_telling){0};
}
