/* Pauses of an export between its steps, and helper threads for its long work. */
#include "common/base/cancel.h"
#include "common/os/helpers.h"
#include "common/os/task.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"

/* A trajectory with more tokens than HELPED_TOKENS (a millisecond of encoding) is work for a helper
 * thread. With more than LONG_TOKENS it is long work there. */
enum { HELPED_TOKENS = 8 << 10, LONG_TOKENS = 4 * HELPED_TOKENS };

void export_count_texts(struct export *x)
{
    size_t now = x->kept_bytes + x->rope.text.cap + x->rope.cap * sizeof(*x->rope.at);

    if (x->options.held_bytes && now != x->counted_bytes)
        atomic_fetch_add_explicit(x->options.held_bytes, now - x->counted_bytes,
                                  memory_order_relaxed);
    x->counted_bytes = now;
}

bool export_pause(struct export *x)
{
    export_count_texts(x);
    return x->failed.kind == ERR_NONE && x->out->flow(x->out, &x->failed) == 0;
}

/* Runs the work, maybe in a helper thread, whose tools begin with its scratch. Outside a task there
 * are no tools. */
static int run_work(void *export, void *tools, struct err *e)
{
    struct export *x = export;

    x->work(x, tools ? *(struct model_scratch **)tools : x->input.scratch);
    return cancel_wanted() ? cancel_fail(e) : 0;
}

bool export_offload(struct export *x, export_work_fn fn)
{
    bool slow = x->input.model && model_is_slow(x->input.model);
    struct task_work w = {.fn = run_work,
                          .ctx = x,
                          .lane = session_id(x->session),
                          .is_short = x->t.total <= HELPED_TOKENS && !slow,
                          .is_long = x->t.total > LONG_TOKENS};

    x->work = fn;
    return task_offload(&w, &x->failed) == 0 && x->failed.kind == ERR_NONE;
}

bool export_work_goes_on(struct export *x)
{
    if (!helpers_within())
        return export_pause(x);
    helpers_step();
    return !cancel_wanted();
}

bool export_recall(struct export *x)
{
    return recall_read(x->recall, &x->failed) == 0;
}
