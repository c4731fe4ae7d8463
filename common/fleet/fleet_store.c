/* Names of verdicts; the scripts of the Redis kind return them. */
#include "common/fleet/fleet_store.h"

const char *store_verdict_name(enum store_verdict v)
{
    static const char *const names[] = {
        [STORE_DONE] = "done",         [STORE_FENCED] = "fenced", [STORE_SHORT] = "short",
        [STORE_CONFLICT] = "conflict", [STORE_ALIVE] = "alive",   [STORE_INCOMPLETE] = "incomplete",
        [STORE_UNKNOWN] = "unknown",   [STORE_NEWER] = "newer",   [STORE_OVERTAKEN] = "overtaken",
        [STORE_FULL] = "full",         [STORE_LOST] = "lost",     [STORE_FAILED] = "failed",
    };

    return names[v];
}
