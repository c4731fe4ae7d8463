/* Loads a journal's records into a session store (replayed.h), for commands that read sessions
 * without a gateway. Records go through session_apply like in a worker. */

#include "worker/commands/replayed.h"

#include "common/journal/journal.h"
#include "common/journal/scan.h"

int replayed_init(const struct model_options *o, const struct session_defaults *d,
                  struct replayed *ret, struct err *e)
{
    struct session_defaults defaults;

    *ret = (struct replayed){0};
    if (model_load(o, &ret->model, e))
        return -1;
    session_defaults_init(&defaults);
    ret->store = session_store_new(ret->model, d ? d : &defaults);
    return 0;
}

/* Refuses a record that cannot be applied and must not be dropped either: one of a different
 * version, or one that is not a session's. */
static void refuse_record(struct replayed *r, struct str id, struct str payload,
                          const struct err *why)
{
    if (r->refused.kind != ERR_NONE)
        return;
    if (why->kind == ERR_UNSUPPORTED)
        r->refused = *why;
    else if (!session_record_kind(payload))
        (void)err_set(&r->refused, ERR_UNSUPPORTED,
                      "the record of \"%.*s\" is not a session's, so this is not the journal of a "
                      "worker: name one of STATE_DIR/worker-N",
                      (int)id.len, id.p);
}

/* Skips delivery notes, which belong to no session. Counts records that cannot be applied. */
void replayed_apply(struct replayed *r, struct str id, struct str payload)
{
    struct err e = {0};

    if (str_eq_c(id, JOURNAL_NOTE))
        return;
    if (session_apply(r->store, payload, &e)) {
        r->skipped++;
        refuse_record(r, id, payload, &e);
    } else {
        r->records++;
    }
}

static void on_record(void *ctx, const struct scan_record *rec)
{
    replayed_apply(ctx, rec->id, rec->payload);
}

/* Counts damage as one skipped record. */
static void on_damage(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last)
{
    struct replayed *r = ctx;

    (void)segment;
    (void)offset;
    (void)bytes;
    (void)last;
    r->skipped++;
}

int replayed_load(const char *dir, const struct model_options *o, struct replayed *ret,
                  struct err *e)
{
    static const struct scan_events events = {.record = on_record, .damage = on_damage};

    if (replayed_init(o, NULL, ret, e))
        return -1;
    if (scan_journal(dir, &events, ret, e) == 0 && ret->refused.kind == ERR_NONE)
        return 0;
    if (ret->refused.kind != ERR_NONE)
        *e = ret->refused;
    replayed_done(ret);
    return -1;
}

void replayed_done(struct replayed *r)
{
    if (r->store)
        session_store_free(r->store);
    model_free(r->model);
    *r = (struct replayed){0};
}
