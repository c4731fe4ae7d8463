/* Handles the fingerprint of the model that made a session. The session's first record contains
 * it. */
#include "worker/session/record/origin.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"

static const struct model_fingerprint *own_fingerprint(const struct session_store *st)
{
    return &model_info(st->model)->fingerprint;
}

void origin_put(struct buf *record, const struct session_store *st)
{
    const struct model_fingerprint *f = own_fingerprint(st);

    record_put_u64(record, f->tokenizer);
    record_put_u64(record, f->special);
    record_put_u64(record, f->template);
}

int origin_read(struct record_in *r, struct model_fingerprint *ret)
{
    ret->tokenizer = record_u64(r);
    ret->special = record_u64(r);
    ret->template = record_u64(r);
    return r->bad || r->p != r->end ? -1 : 0;
}

void session_set_origin(struct session *s, const struct model_fingerprint *f)
{
    free(s->origin);
    s->origin = NULL;
    if (!f || !f->tokenizer)
        return;
    s->origin = mem_alloc(sizeof(*s->origin));
    *s->origin = *f;
}

static uint64_t tokenizer_of(const struct session *s)
{
    return s->origin ? s->origin->tokenizer : 0;
}

bool session_foreign(const struct session *s)
{
    uint64_t theirs = tokenizer_of(s), ours = own_fingerprint(s->store)->tokenizer;

    return theirs && ours && theirs != ours;
}

int session_refuse_foreign(const struct session *s, struct err *e)
{
    if (!session_foreign(s))
        return 0;
    return err_set(e, ERR_FOREIGN,
                   "this session was made with another tokenizer (%016llx; this gateway's is "
                   "%016llx): it can be exported and ended, not continued",
                   (unsigned long long)tokenizer_of(s),
                   (unsigned long long)own_fingerprint(s->store)->tokenizer);
}

/* Leaves out copies that a crash interrupted. */
void session_store_origins(const struct session_store *st, struct session_origins *ret)
{
    const struct session *s;

    *ret = (struct session_origins){0};
    LIST_EACH(&st->all, s, struct session, item) {
        const struct model_fingerprint *f = s->origin;

        if (session_has_ended(s) || session_copying(s) || !f)
            continue;
        if (f->tokenizer != own_fingerprint(st)->tokenizer) {
            ret->first_foreign = ret->foreign ? ret->first_foreign : *f;
            ret->foreign++;
        } else {
            ret->other_special += f->special != own_fingerprint(st)->special;
            ret->other_template += f->template != own_fingerprint(st)->template;
        }
    }
}
