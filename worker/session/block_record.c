/* Long blocks of answers -> records of their parts, before the answers (blocks_ahead.c reads them).
 * A block that is longer than a part goes this way; what is shorter stands with its answer. */
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "worker/session/commit.h"
#include "worker/session/plan.h"
#include "worker/session/record.h"
#include "worker/session/session_answer.h"
#include "worker/session/store.h"

struct str session_answer_block(const struct session_answer *a, int kind)
{
    switch (kind) {
    case BLOCK_TOLD:
        return a->told;
    case BLOCK_MESSAGE:
        return a->message_text;
    case BLOCK_BULK:
        return (struct str){0};
    default:
        return a->rows[kind].block;
    }
}

bool plan_block_ahead(const struct plan *p, struct str block)
{
    return p->blocks.ahead > 0 && block.len > p->blocks.max;
}

/* The one that the next part is of. False: there is none left. */
static bool find_block(struct plan *p, const struct session_answer *answers, size_t n,
                       struct str *ret)
{
    while (p->blocks.answer < n) {
        *ret = session_answer_block(&answers[p->blocks.answer], p->blocks.kind);
        if (ret->len > p->blocks.max && p->blocks.at < ret->len)
            return true;
        p->blocks.at = 0;
        if (++p->blocks.kind == BLOCK_KINDS) {
            p->blocks.kind = 0;
            p->blocks.answer++;
        }
    }
    return false;
}

bool plan_block_record(struct plan *p, const struct session_answer *answers, size_t n,
                       size_t max_bytes, uint64_t now_ms, struct buf *record)
{
    enum { BESIDES = 64 };

    struct record_head h = {RECORD_BLOCKS, RECORD_VERSION_BLOCKS, p->session->id, now_ms};
    struct str block, part;

    p->blocks.max = max_bytes;
    if (!find_block(p, answers, n, &block))
        return false;
    part = str_sub(block, p->blocks.at, max_bytes);
    (void)buf_reserve(record, part.len + p->session->id.len + BESIDES);
    if (p->blocks.kind == BLOCK_MESSAGE)
        h.version = RECORD_VERSION_MESSAGE;
    record_put_head(record, &h);
    record_put_u(record, p->pub.call);
    record_put_u(record, p->blocks.ahead);
    record_put_u(record, p->blocks.answer);
    record_put_u(record, (unsigned)p->blocks.kind);
    buf_add_str(record, part);
    mem_drop_pages(part.p, part.len); /* all at once at the end they would take a while */
    p->blocks.ahead += part.len;
    p->blocks.at += part.len;
    return true;
}
