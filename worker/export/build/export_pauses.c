/* Pauses of an export between its steps, and helper threads for its long work. */
#include "common/base/cancel.h"
#include "common/os/helpers.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/session/store/recall.h"

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

bool export_offload(struct export *x, export_work_fn fn)
{
    x->work = fn;
    if (!x->out->offload || x->t.total <= HELPED_TOKENS)
        fn(x, x->input.scratch);
    else if (x->out->offload(x->out, x, &x->failed))
        return false;
    return x->failed.kind == ERR_NONE;
}

bool export_work_goes_on(struct export *x)
{
    if (!helpers_within())
        return export_pause(x);
    helpers_step();
    return !cancel_wanted();
}

void export_run_work(struct export *x, struct model_scratch *scratch)
{
    x->work(x, scratch);
}

bool export_work_is_long(const struct export *x)
{
    return x->t.total > LONG_TOKENS;
}

bool export_recall(struct export *x)
{
    return recall_read(x->recall, &x->failed) == 0;
}
