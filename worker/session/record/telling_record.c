/* The record of a call (telling.h). A record never changes. */
#include "common/base/arena.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/store.h"

/* A piece of so many ids takes about a tenth of a millisecond. */
enum { PIECE_IDS = 4096 };

MAY_PAUSE static int write_ids(struct session_telling *t, const struct checkpoint *of, size_t from,
                               size_t n, struct err *e)
{
    int32_t ids[256];

    for (size_t end = from + n, at = from, k; at < end; at += k) {
        k = MIN_OF(end - at, ARRAY_LEN(ids));
        checkpoint_copy_part(of, (uint32_t)at, (uint32_t)k, ids);
        for (size_t i = 0; i < k; i++)
            json_out_i64(&t->out, ids[i]);
        if ((at + k - from) % PIECE_IDS == 0 && telling_flow(t, e))
            return -1;
    }
    return 0;
}

/* Writes ids of the path that ends in `of`: with from 0 of all of it, else the answer's own. They
 * are held meanwhile. */
MAY_PAUSE static int put_ids(struct session_telling *t, const char *name,
                             const struct checkpoint *of, size_t from, size_t n, struct err *e)
{
    struct recall r = {.session = t->session, .holds = true};
    int rc;

    json_out_member_arr(&t->out, name);
    if (from > 0)
        recall_checkpoint(&r, of);
    else
        recall_path(&r, of);
    rc = recall_read(&r, e) || write_ids(t, of, from, n, e) ? -1 : 0;
    recall_done(&r);
    json_out_end_arr(&t->out);
    return rc;
}

int telling_put_path(struct session_telling *t, const char *name, const struct checkpoint *of,
                     size_t n, struct err *e)
{
    return put_ids(t, name, of, 0, n, e);
}

MAY_PAUSE static int put_messages(struct session_telling *t, const struct message_node *prompt,
                                  struct err *e)
{
    struct arena tmp = {0};
    const struct json *messages = node_messages(prompt, &tmp);
    int rc = 0;

    json_out_member_arr(&t->out, "messages");
    for (uint32_t i = 0; i < messages->n && rc == 0; i++) {
        json_out_value(&t->out, &messages->items[i]);
        rc = telling_flow(t, e);
    }
    json_out_end_arr(&t->out);
    arena_done(&tmp);
    return rc;
}

/* Writes the request of a chat. Completions have no messages. */
MAY_PAUSE static int put_request(struct session_telling *t, const struct message_node *node,
                                 struct err *e)
{
    struct json_out *o = &t->out;

    json_out_member_obj(o, "request");
    if (put_messages(t, node->parent, e))
        return -1;
    if (node->env->tools)
        json_out_member_value(o, "tools", node->env->tools);
    if (node->env->kwargs)
        json_out_member_value(o, "chat_template_kwargs", node->env->kwargs);
    json_out_end_obj(o);
    return 0;
}

MAY_PAUSE static int put_answer(struct session_telling *t, const struct checkpoint *of,
                                struct err *e)
{
    struct json_out *o = &t->out;

    json_out_obj(o);
    json_out_member_str(o, "response_id", of->response_id);
    json_out_member_str(o, "finish_reason", of->finish_reason);
    json_out_member_value(o, "message", of->message);
    if (put_ids(t, "output_ids", of, checkpoint_start(of), of->n, e))
        return -1;
    json_out_member_i64(o, "queue_us", of->queue_us);
    json_out_member_i64(o, "engine_us", of->engine_us);
    json_out_member_i64(o, "gateway_us", of->gateway_us);
    json_out_end_obj(o);
    return telling_flow(t, e);
}

/* Writes the answers of a call, which has at least one. */
MAY_PAUSE static int put_answers(struct session_telling *t, const struct call_record *c,
                                 struct err *e)
{
    const struct forest *f = &t->session->forest;
    const struct checkpoint *first = f->checkpoints.at[c->first_checkpoint];

    if (first->node && put_request(t, first->node, e))
        return -1;
    if (put_ids(t, "prompt_ids", first, 0, checkpoint_start(first), e))
        return -1;
    json_out_member_arr(&t->out, "answers");
    for (uint32_t i = 0; i < c->n_checkpoints; i++)
        if (put_answer(t, f->checkpoints.at[c->first_checkpoint + i], e))
            return -1;
    json_out_end_arr(&t->out);
    return 0;
}

int telling_put_record(struct session_telling *t, size_t call, struct err *e)
{
    const struct call_record *c = t->session->forest.calls.at[call];
    struct json_out *o = &t->out;

    json_out_obj(o);
    json_out_member_i64(o, "call", c->number);
    json_out_member_seconds(o, "timestamp", c->at_ms);
    json_out_member_bool(o, "exhausted", c->exhausted);
    json_out_member_i64(o, "prompt_tokens", c->prompt_tokens);
    if (c->max_tokens)
        json_out_member_i64(o, "max_tokens", (uint64_t)c->max_tokens);
    if (c->n_checkpoints > 0 && put_answers(t, c, e))
        return -1;
    if (c->n_checkpoints == 0) {
        json_out_member_arr(o, "answers");
        json_out_end_arr(o);
    }
    json_out_end_obj(o);
    return telling_flow(t, e);
}
