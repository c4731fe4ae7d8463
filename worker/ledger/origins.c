/* Handles sessions that a different model made, at a worker's start: refuses them, or keeps them
 * for export. Logs other changes of the model. */
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
