/* What stands behind the arrays of a trajectory, in the order of its members:
 *
 *   NATIVE_BEGIN      group, num_turns
 *   NATIVE_MESSAGES   some a part; behind the last one the images
 *   NATIVE_TURNS      some a part; behind the last one the outcome
 *
 * What is written at once is made by the same parts, so the bytes are the same. */
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/export/export_format.h"
#include "worker/export/pictures_layout.h"
#include "worker/session/group.h"

/* Of one part: about a quarter of a millisecond. PART_BYTES: of messages, which may be long. */
enum { PART_MESSAGES = 128, PART_TURNS = 32, PART_BYTES = 64 << 10 };

struct native_rest {
    enum { NATIVE_BEGIN, NATIVE_MESSAGES, NATIVE_TURNS, NATIVE_WHOLE } stage;

    uint32_t at;     /* messages, or turns, that are written */
    bool comma;      /* the next member needs one */
    size_t prompt;   /* where the messages begin, behind the bracket */
    size_t prompt_n; /* bytes of those before the first generated one */
    bool answers;    /* that one is written */
    struct buf text;
};

bool native_is_long(const struct trajectory *t)
{
    size_t bytes = 0;

    if (t->messages->n > PART_MESSAGES || t->n_turns > PART_TURNS)
        return true;
    for (uint32_t i = 0; i < t->messages->n && bytes < PART_BYTES; i++)
        bytes += json_text_bytes(&t->messages->items[i], PART_BYTES - bytes);
    return bytes >= PART_BYTES;
}

static void begin(struct export *x, const struct trajectory *t, struct json_out *o)
{
    group_put(x->session, o);
    json_out_member_i64(o, "num_turns", t->n_turns);
}

/* Writes items from r->at on. */
static void some_messages(struct native_rest *r, const struct trajectory *t, struct json_out *o)
{
    size_t end = o->b->len + PART_BYTES;
    uint32_t last = r->at + MIN_OF((uint32_t)PART_MESSAGES, t->messages->n - r->at);

    for (; r->at < last && o->b->len < end; r->at++) {
        r->answers = r->answers || t->generated[r->at];
        native_write_message(t, r->at, o);
        if (!r->answers)
            r->prompt_n = o->b->len - r->prompt;
    }
}

/* Made parts have their text already. */
void native_write_prompt(const struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct native_rest *r = x->rest;

    json_out_arr(o);
    if (r && r->stage == NATIVE_WHOLE && r->prompt_n > 0)
        json_out_raw(o, str_of(r->text.p + r->prompt, r->prompt_n));
    else if (!r || r->stage != NATIVE_WHOLE)
        for (uint32_t i = 0; i < t->messages->n && !t->generated[i]; i++)
            native_write_message(t, i, o);
    json_out_end_arr(o);
}

void native_write_turn(const struct trajectory *t, uint32_t i, struct json_out *o)
{
    json_out_obj(o);
    native_write_turn_members(t, &t->turns[i], o);
    json_out_end_obj(o);
}

static void some_turns(struct native_rest *r, const struct trajectory *t, struct json_out *o)
{
    uint32_t last = r->at + MIN_OF((uint32_t)PART_TURNS, t->n_turns - r->at);

    for (; r->at < last; r->at++)
        native_write_turn(t, r->at, o);
}

void native_write_brief(struct export *x, const struct trajectory *t, struct json_out *o)
{
    begin(x, t, o);
    images_write(t, o);
    native_write_outcome(x, t, o);
}

bool native_rest_part(struct export *x, const struct trajectory *t)
{
    struct native_rest *r = x->rest ? x->rest : mem_zalloc(sizeof(*r));
    struct json_out o = {&r->text, r->comma};

    x->rest = r;
    switch (r->stage) {
    case NATIVE_BEGIN:
        begin(x, t, &o);
        json_out_key(&o, "messages");
        json_out_arr(&o);
        r->prompt = r->text.len;
        r->stage = NATIVE_MESSAGES;
        break;
    case NATIVE_MESSAGES:
        some_messages(r, t, &o);
        if (r->at < t->messages->n)
            break;
        json_out_end_arr(&o);
        images_write(t, &o);
        json_out_key(&o, "turns");
        json_out_arr(&o);
        r->at = 0;
        r->stage = NATIVE_TURNS;
        break;
    case NATIVE_TURNS:
        some_turns(r, t, &o);
        if (r->at < t->n_turns)
            break;
        json_out_end_arr(&o);
        native_write_outcome(x, t, &o);
        r->stage = NATIVE_WHOLE;
        break;
    case NATIVE_WHOLE:
        break;
    }
    r->comma = o.comma;
    x->made_bytes = r->text.cap;
    return r->stage != NATIVE_WHOLE;
}

void native_take_rest(struct export *x, const struct trajectory *t, struct buf *ret)
{
    while (native_rest_part(x, t)) {
    }
    *ret = x->rest->text;
    x->rest->text = (struct buf){0};
    native_rest_drop(x);
}

void native_write_rest(struct export *x, const struct trajectory *t, struct json_out *o)
{
    struct buf text;

    native_take_rest(x, t, &text);
    json_out_raw(o, buf_str(&text));
    buf_done(&text);
}

void native_rest_drop(struct export *x)
{
    if (!x->rest)
        return;
    buf_done(&x->rest->text);
    free(x->rest);
    x->rest = NULL;
    x->made_bytes = 0;
}
