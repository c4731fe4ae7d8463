/* Replicas that are halves of a split (halves.c): which ones are, whether both kinds are up, and
 * which one computes the prefill of a call. */
#include "common/base/log.h"
#include "worker/engine/pool/replicas.h"

enum engine_half replica_half(const struct replica *r)
{
    enum engine_half told = r->adapter->half ? r->adapter->half(r->impl) : HALF_WHOLE;

    return told != HALF_UNTOLD ? told : r->half;
}

bool replicas_split(const struct replicas *r)
{
    bool seen[HALF_DECODE + 1] = {0};

    for (size_t i = 0; i < r->n; i++)
        seen[replica_half(r->at[i])] = true;
    return seen[HALF_PREFILL] && seen[HALF_DECODE];
}

static bool half_up(const struct replicas *r, enum engine_half half)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->at[i]->up && replica_half(r->at[i]) == half)
            return true;
    }
    return false;
}

bool replica_unpaired(const struct replica *r)
{
    enum engine_half half = replica_half(r);

    if (half != HALF_PREFILL && half != HALF_DECODE)
        return false;
    return replicas_split(r->all) &&
           !half_up(r->all, half == HALF_PREFILL ? HALF_DECODE : HALF_PREFILL);
}

/* Reports whether the replica answers calls itself. A prefill half does not. */
static bool answers_alone(const struct replica *r)
{
    return !replica_unpaired(r) && (replica_half(r) != HALF_PREFILL || !replicas_split(r->all));
}

bool replicas_any_up(const struct replicas *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->at[i]->up && answers_alone(r->at[i]))
            return true;
    }
    return false;
}

bool replicas_any_serves(const struct replicas *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (replica_serves(r->at[i]) && answers_alone(r->at[i]))
            return true;
    }
    return false;
}

static enum engine_half missing_half(const struct replicas *r)
{
    if (!replicas_split(r))
        return HALF_UNTOLD;
    return !half_up(r, HALF_PREFILL)  ? HALF_PREFILL
           : !half_up(r, HALF_DECODE) ? HALF_DECODE
                                      : HALF_UNTOLD;
}

void replicas_note_halves(struct replicas *r)
{
    enum engine_half was = r->missing;
    bool changed = false;

    for (size_t i = 0; i < r->n; i++) {
        enum engine_half half = replica_half(r->at[i]);

        changed = changed || half != r->at[i]->half;
        r->at[i]->half = half;
    }
    r->missing = missing_half(r);
    if (r->missing != was && r->missing != HALF_UNTOLD)
        log_warn(NULL, "no half of a split is up that does this part: calls wait for one",
                 LOG_T("part", r->missing == HALF_PREFILL ? "prefill" : "decode"));
    else if (r->missing != was)
        log_info(NULL, "both halves of the split are up");
    if (changed || r->missing != was)
        pool_changed(r->pool);
}

/* Returns its number of calls divided by its weight. */
static double weighted_load(const struct replica *r)
{
    return r->inflight / r->target.weight;
}

struct replica *replicas_prefill(const struct replicas *all, const struct replica_wish *w)
{
    struct replica *found = NULL;

    for (size_t i = 0; i < all->n; i++) {
        struct replica *r = all->at[i];

        if (replica_half(r) != HALF_PREFILL || !r->up || !replica_has_slot(r) ||
            !replica_suits(r, w->request))
            continue;
        if (!found || found == w->avoid ||
            (r != w->avoid &&
             (weighted_load(r) < weighted_load(found) ||
              (weighted_load(r) <= weighted_load(found) &&
               replica_score(r, w->session_id) > replica_score(found, w->session_id)))))
            found = r;
    }
    return found;
}
