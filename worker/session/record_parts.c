/* Reads no more of a record than it must (record_parts.h). */
#include "worker/session/record_parts.h"

#include "worker/session/commit.h"
#include "worker/session/commit_record.h"
#include "worker/session/record.h"
#include "worker/session/session.h"

static void look_at_commit(struct record_in *r, struct record_parts *ret)
{
    struct commit_record c = {0};

    commit_record_read_head(r, &c);
    if (r->bad)
        return;
    ret->sense = PARTS_NAMED;
    ret->call = c.call;
    ret->named[PART_TEXTS] = c.flags & COMMIT_AHEAD;
    ret->named[PART_ANSWERS] = c.flags & COMMIT_ANSWERS_AHEAD;
    ret->named[PART_BLOCKS] = c.flags & COMMIT_ANSWER_PLACES;
}

static void look_at_part(struct record_in *r, enum part_kind kind, struct record_parts *ret)
{
    ret->call = record_u(r);
    ret->first = record_u(r) == 0; /* nothing before it */
    ret->kind = kind;
    if (!r->bad)
        ret->sense = PARTS_ONE;
}

/* The bulk of a record may come behind answers of its call. */
static void look_at_block(struct record_in *r, struct record_parts *ret)
{
    uint32_t answer;

    look_at_part(r, PART_BLOCKS, ret);
    answer = record_u32(r);
    ret->behind_answers = answer > 0 && record_u(r) == BLOCK_BULK && !r->bad;
}

/* A copy that is whole has no calls that run, and a session that ends lets none be recorded; one
 * that was completed does. */
void session_record_parts(struct str record, struct record_parts *ret)
{
    struct record_in r = record_in_of(record);
    struct record_head h;

    *ret = (struct record_parts){.sense = PARTS_NOTHING};
    if (!record_read_head(&r, &h))
        return;
    switch (h.type) {
    case RECORD_COMMIT:
        look_at_commit(&r, ret);
        break;
    case RECORD_TEXTS:
        look_at_part(&r, PART_TEXTS, ret);
        break;
    case RECORD_ANSWERS:
        look_at_part(&r, PART_ANSWERS, ret);
        break;
    case RECORD_BLOCKS:
        look_at_block(&r, ret);
        break;
    case RECORD_END:
        if (record_u(&r) == SESSION_END_COMPLETE || r.bad)
            break;
        ret->sense = PARTS_OVER;
        break;
    case RECORD_FORK:
    case RECORD_IMPORT:
        ret->sense = PARTS_OVER;
        break;
    default:
        break;
    }
}
