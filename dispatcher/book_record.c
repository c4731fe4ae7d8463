/*
 * Writes records with json_out and reads them as JSON trees. Readers are lenient: a missing number
 * is 0, a missing text NULL, because a record may be older than a field. book.c checks what a
 * record must have to be applied. An unknown kind is an error: book_apply refuses it, and the
 * dispatcher does not start.
 */
#include "dispatcher/book_record.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"

static const char *const kinds[RECORD_KINDS] = {"group",  "claim", "end",      "deadline",
                                                "cancel", "taken", "returned", "acked",
                                                "told",   "lost",  "telling"};

static struct json_out begin_record(enum record_kind kind, struct str id, uint64_t at_ms,
                                    struct buf *out)
{
    struct json_out o;

    buf_clear(out);
    o = json_out_to(out);
    json_out_obj(&o);
    json_out_member_cstr(&o, "t", kinds[kind]);
    json_out_member_str(&o, "id", id);
    json_out_member_i64(&o, "at", (int64_t)at_ms);
    return o;
}

static void put_mark(struct json_out *o, const char *key, bool is_set)
{
    if (!is_set)
        return;
    json_out_member_bool(o, key, true);
}

void record_group(struct str id, struct str submission, struct record_begin begin, uint64_t at_ms,
                  struct buf *out)
{
    struct json_out o = begin_record(RECORD_GROUP, id, at_ms, out);

    if (begin.seq > 0)
        json_out_member_i64(&o, "seq", (int64_t)begin.seq);
    put_mark(&o, "continues", begin.continues);
    json_out_member_raw(&o, "group", submission);
    json_out_end_obj(&o);
}

void record_claim(struct str id, const struct record_claim *c, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_CLAIM, id, at_ms, out);

    json_out_member_i64(&o, "rollout", c->rollout);
    json_out_member_str(&o, "attempt", c->attempt);
    json_out_member_str(&o, "session", c->session);
    json_out_member_str(&o, "executor", c->executor);
    json_out_end_obj(&o);
}

static void put_raw(struct json_out *o, const char *key, const char *text)
{
    if (!text)
        return;
    json_out_member_raw(o, key, str_cstr(text));
}

static void put_word(struct json_out *o, const char *key, const char *text)
{
    if (text)
        json_out_member_str(o, key, str_cstr(text));
}

void record_end(const struct attempt *a, enum outcome outcome, enum end_kind kind,
                const struct result *r, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_END, a->rollout->group->spec.id, at_ms, out);

    json_out_member_str(&o, "attempt", str_cstr(a->id));
    json_out_member_str(&o, "outcome", str_cstr(outcome_names[outcome]));
    put_mark(&o, "lost", kind == END_LOST);
    put_mark(&o, "refused", kind == END_REFUSED);
    put_mark(&o, "open", kind != END_FINALIZED);
    put_mark(&o, "beside", r->beside);
    if (r->has_reward)
        json_out_member_double(&o, "reward", r->reward);
    if (r->has_finished)
        json_out_member_bool(&o, "finished", r->finished);
    if (r->has_versions) {
        json_out_member_i64(&o, "min_version", r->min_version);
        json_out_member_i64(&o, "max_version", r->max_version);
    }
    json_out_member_i64(&o, "trajectories", (int64_t)r->trajectories);
    json_out_member_i64(&o, "trained_tokens", (int64_t)r->trained_tokens);
    put_raw(&o, "reward_info", r->reward_info);
    put_raw(&o, "timings", r->timings);
    put_word(&o, "reason", r->reason);
    put_word(&o, "log", r->log);
    put_word(&o, "log_tail", r->log_tail);
    json_out_end_obj(&o);
}

void record_cancel(struct str id, bool deliver, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_CANCEL, id, at_ms, out);

    json_out_member_bool(&o, "deliver", deliver);
    json_out_end_obj(&o);
}

void record_taken(struct str id, uint64_t lease_ms, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_TAKEN, id, at_ms, out);

    json_out_member_i64(&o, "lease_ms", (int64_t)lease_ms);
    json_out_end_obj(&o);
}

void record_told(struct str id, uint64_t submitted_at_ms, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_TOLD, id, at_ms, out);

    json_out_member_i64(&o, "submitted", (int64_t)submitted_at_ms);
    json_out_end_obj(&o);
}

void record_lost(const struct attempt *a, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(RECORD_LOST, a->rollout->group->spec.id, at_ms, out);

    json_out_member_str(&o, "attempt", str_cstr(a->id));
    json_out_end_obj(&o);
}

void record_plain(enum record_kind kind, struct str id, uint64_t at_ms, struct buf *out)
{
    struct json_out o = begin_record(kind, id, at_ms, out);

    json_out_end_obj(&o);
}

bool record_is_telling(struct str text)
{
    return str_starts(text, STR("{\"t\":\"telling\","));
}

enum record_kind record_kind(const struct json *r)
{
    return (enum record_kind)str_index(json_string(json_get(r, "t")), kinds, RECORD_KINDS);
}

static uint64_t copy_count(const struct json *r, const char *key)
{
    int64_t n = 0;

    (void)json_to_i64(json_get(r, key), &n);
    return n > 0 ? (uint64_t)n : 0;
}

uint64_t record_at(const struct json *r)
{
    return copy_count(r, "at");
}

uint64_t record_seq(const struct json *r)
{
    return copy_count(r, "seq");
}

bool record_continues(const struct json *r)
{
    return json_is_true(json_get(r, "continues"));
}

uint64_t record_lease_ms(const struct json *r)
{
    return copy_count(r, "lease_ms");
}

uint64_t record_submitted(const struct json *r)
{
    return copy_count(r, "submitted");
}

enum outcome record_outcome(const struct json *r)
{
    return (enum outcome)str_index(json_string(json_get(r, "outcome")), outcome_names, OUTCOMES);
}

static char *copy_word(const struct json *r, const char *key)
{
    struct str s = json_string(json_get(r, key));

    return s.p ? mem_strndup(s.p, s.len) : NULL;
}

static char *copy_object(const struct json *r, const char *key)
{
    const struct json *v = json_get(r, key);
    struct buf text = {0};

    if (!json_is(v, JSON_OBJECT))
        return NULL;
    json_write(&text, v);
    return buf_take(&text);
}

void record_result(const struct json *r, struct result *ret)
{
    const struct json *finished = json_get(r, "finished");

    result_done(ret);
    ret->outcome = record_outcome(r);
    ret->has_outcome = true;
    ret->has_reward = json_to_double(json_get(r, "reward"), &ret->reward) == 0;
    ret->has_finished = json_is(finished, JSON_BOOL);
    ret->finished = json_is_true(finished);
    ret->beside = json_is_true(json_get(r, "beside"));
    ret->has_versions = json_to_i64(json_get(r, "min_version"), &ret->min_version) == 0 &&
                        json_to_i64(json_get(r, "max_version"), &ret->max_version) == 0;
    ret->trajectories = copy_count(r, "trajectories");
    ret->trained_tokens = copy_count(r, "trained_tokens");
    ret->reward_info = copy_object(r, "reward_info");
    ret->timings = copy_object(r, "timings");
    ret->reason = copy_word(r, "reason");
    ret->log = copy_word(r, "log");
    ret->log_tail = copy_word(r, "log_tail");
}
