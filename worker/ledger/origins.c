/* Handles sessions that a different model made, at a worker's start: refuses them, keeps them for
 * export, or adopts them. Logs other changes of the model. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/residency.h"
#include "worker/session/record/origin.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"

static const char *same_or_other(uint64_t theirs, uint64_t ours)
{
    return theirs == ours ? "same" : "other";
}

/* Makes the error. It is short, because it is also the process's last report. */
static int refuse_foreign(const struct model *m, const struct session_origins *o, struct err *e)
{
    const struct model_fingerprint *ours = &model_info(m)->fingerprint;
    const struct model_fingerprint *theirs = &o->first_foreign;

    return err_set(
        e, ERR_CONFIG,
        "open sessions of another tokenizer than this --model's: %zu (chat template: %s, "
        "special tokens: %s); start with their --model, another --state-dir, or "
        "--foreign-sessions export to keep them for export",
        o->foreign, same_or_other(theirs->template, ours->template),
        same_or_other(theirs->special, ours->special));
}

static int adopt_session(struct ledger *l, struct session *s, struct err *e)
{
    struct buf record = {0};
    int rc;

    session_origin_record(s, clock_wall_ms(), &record);
    rc = ledger_write(l, session_id(s), buf_str(&record), (struct ledger_done){0}, e);
    buf_done(&record);
    return rc;
}

int ledger_adopt_sessions(struct ledger *l, struct err *e)
{
    struct session_store *store = l->residency->store;
    struct session_origins o;
    struct err unserved;

    session_store_origins(store, &o);
    if (o.unclaimed == 0)
        return 0;
    log_info(NULL, "sessions of an older program do not tell their tokenizer: taken for this one's",
             LOG_U("sessions", o.unclaimed));
    for (struct session *s = session_next(store, NULL); s; s = session_next(store, s)) {
        if (!session_unclaimed(s) || ledger_check_owner(l, session_id(s), &unserved))
            continue;
        if (adopt_session(l, s, e))
            return -1;
    }
    return 0;
}

int ledger_check_origins(const struct ledger *l, const struct model *m, bool keep_foreign,
                         struct err *e)
{
    struct session_origins o;

    session_store_origins(l->residency->store, &o);
    if (o.foreign > 0 && !keep_foreign)
        return refuse_foreign(m, &o, e);
    if (o.foreign > 0)
        log_warn(NULL, "sessions of another tokenizer are kept for export only",
                 LOG_U("sessions", o.foreign));
    if (o.other_template > 0)
        log_warn(NULL,
                 "sessions began with another chat template: they go on from their stored ids, new "
                 "messages are written by this one",
                 LOG_U("sessions", o.other_template));
    if (o.other_special > 0)
        log_warn(NULL,
                 "sessions began with other special tokens or stop ids: they go on with these",
                 LOG_U("sessions", o.other_special));
    return 0;
}
