/* Loads the model in the supervisor before it forks, so that all workers share its memory. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/session/record/commit.h"
#include "worker/setup.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"
#include "worker/worker.h"

/* Refuses a tokenizer different from the one before an upgrade, which the new binary, and its
 * trial, read from the environment: the workers would refuse their open sessions after the old
 * processes are gone. */
static int keep_tokenizer(const struct config *c, const struct model *m, struct err *e)
{
    static const char name[] = "RG_TOKENIZER";
    const char *before = getenv(name);
    char now[24];

    (void)snprintf(now, sizeof(now), "%016llx",
                   (unsigned long long)model_info(m)->fingerprint.tokenizer);
    if (before && strcmp(before, now) != 0 && c->foreign_sessions == FOREIGN_REFUSE)
        return err_set(
            e, ERR_CONFIG,
            "an upgrade with another tokenizer (%s, it was %s) would leave open sessions "
            "behind: stop and start, or set --foreign-sessions export",
            now, before);
    if (setenv(name, now, 1))
        return err_sys(e, ERR_IO, "setenv");
    return 0;
}

/* Logs each line as a warning. */
static void log_lines(const char *what, struct str lines)
{
    while (lines.len > 0)
        log_warn(NULL, what, LOG_S("why", str_cut(&lines, '\n')));
}

/* Logs what is odd about the model's folder, and each setting that will have no effect. */
static void warn_of_model(const struct config *c, const struct model *m)
{
    struct buf settings = {0};

    log_lines("the model folder is odd", model_warnings(m));
    setup_warn(c, m, &settings);
    log_lines("a setting is doubtful", buf_str(&settings));
    buf_done(&settings);
}

void worker_describe(const struct model *m, struct heritage_build *ret)
{
    *ret = (struct heritage_build){.tokenizer = model_info(m)->fingerprint.tokenizer,
                                   .oldest_record = RECORD_VERSION_OLDEST,
                                   .usual_record = RECORD_VERSION_USUAL,
                                   .newest_record = RECORD_VERSION};
}

/* Adds a line about the model to `remark`, for the supervisor's log. */
int worker_load(const struct config *c, const struct model **ret, struct buf *remark, struct err *e)
{
    struct model_options o = setup_model(c);
    struct model *m = NULL;

    if (model_load(&o, &m, e))
        return -1;
    if (keep_tokenizer(c, m, e)) {
        model_free(m);
        return -1;
    }
    warn_of_model(c, m);
    buf_printf(remark, "%s, vocabulary %u, PCRE2 JIT %s", model_info(m)->name,
               model_info(m)->vocab_size, tokenizer_jit_works() ? "on" : "off");
    /* Memory that the loading has freed would be in every worker, and copied page by page when a
     * worker writes to it. */
    (void)malloc_trim(0);
    *ret = m;
    return 0;
}

void worker_unload(const struct model *m)
{
    model_free((struct model *)(uintptr_t)m);
}

bool worker_judge_model(const struct model *m, struct buf *out)
{
    return model_judge(m, out);
}
