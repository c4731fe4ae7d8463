/* Budgets of unfinished request bodies, by key and by address. The largest body of a caller is
 * refused, so that a flood affects only its sender. */

#include "router/bodies.h"

#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/callers.h"
#include "router/hub.h"

/* Returns the budget in bytes. One body of the largest size always fits. */
static uint64_t budget_of(const struct config *config, int64_t set)
{
    return set > 0 ? (uint64_t)MAX_OF(set, config->max_body_bytes) : UINT64_MAX;
}

/* Returns the caller's connection with the most unfinished bytes. */
static struct conn *largest_of(const struct hub *h, const struct caller *who)
{
    struct conn *most = NULL, *c;

    LIST_EACH(&h->conns, c, struct conn, item) {
        if ((c->address == who || c->key == who) && (!most || c->body_bytes > most->body_bytes))
            most = c;
    }
    return most;
}

static void mark_for_refusal(struct conn *c, const char *setting)
{
    conn_forget_body(c);
    c->over_budget = setting;
    conn_again(c);
}

/* Reports whether the caller's bodies are within the budget, even if each of its gathering
 * connections, and `more` additional ones, has CONN_GATHER_BYTES of unread bytes. */
static bool surely_fits(const struct caller *who, uint64_t budget, unsigned more)
{
    return !who ||
           who->body_bytes + (uint64_t)(who->gatherers + more) * CONN_GATHER_BYTES <= budget;
}

bool bodies_may_gather(const struct conn *c)
{
    const struct config *config = c->hub->config;
    unsigned more = c->gathers ? 0 : 1; /* c counts among the gatherers already */

    return surely_fits(c->address, budget_of(config, config->max_address_body_bytes), more) &&
           surely_fits(c->key, budget_of(config, config->max_key_body_bytes), more);
}

/* Makes the caller's connections read their unread bytes, if its bodies may exceed the budget. */
static void read_unseen_bodies(struct hub *h, const struct caller *who, uint64_t budget)
{
    struct conn *c;

    if (!who || who->gatherers == 0 || surely_fits(who, budget, 0))
        return;
    LIST_EACH(&h->conns, c, struct conn, item) {
        if (!c->gathers || (c->address != who && c->key != who))
            continue;
        conn_gather(c, false);
        c->readable = true;
        conn_again(c);
    }
}

void bodies_take(struct conn *c, size_t n)
{
    const struct config *config = c->hub->config;

    c->body_fresh_bytes += n;
    if (c->over_budget)
        return;
    c->body_bytes += n;
    c->address->body_bytes += n;
    if (c->key)
        c->key->body_bytes += n;
    if (c->key && c->key->body_bytes > budget_of(config, config->max_key_body_bytes))
        mark_for_refusal(largest_of(c->hub, c->key), "--max-key-body-bytes");
    if (c->address->body_bytes > budget_of(config, config->max_address_body_bytes))
        mark_for_refusal(largest_of(c->hub, c->address), "--max-address-body-bytes");
    read_unseen_bodies(c->hub, c->address, budget_of(config, config->max_address_body_bytes));
    read_unseen_bodies(c->hub, c->key, budget_of(config, config->max_key_body_bytes));
}

bool bodies_refused(struct conn *c, struct err *e)
{
    const char *setting = c->over_budget;

    c->over_budget = NULL;
    if (!setting || c->up.done || c->upload == UPLOAD_ENDED)
        return false;
    metrics_count_at(c->hub->page, METRIC_refusals, METRIC_REFUSAL_BODIES, 0, 1);
    (void)err_set(e, ERR_OVERLOADED,
                  "too many bytes of request bodies are under way (%s), and this one has most",
                  setting);
    return true;
}

uint64_t bodies_patience_ms(struct conn *c)
{
    const struct config *config = c->hub->config;
    uint64_t most_ms = (uint64_t)config->body_timeout_ms, now_ms = loop_now_ms(c->hub->loop);
    uint64_t spent_ms = c->body_waits ? now_ms - c->body_seen_ms : 0;
    uint64_t fresh = c->body_fresh_bytes, rate = (uint64_t)config->min_body_rate;
    uint64_t left_ms = c->body_left_ms > spent_ms ? c->body_left_ms - spent_ms : 0;

    if (rate == 0 && fresh > 0)
        left_ms = most_ms;
    else if (rate > 0)
        left_ms += fresh < SIZE_MAX / 1000 ? fresh * 1000 / rate : most_ms;
    c->body_fresh_bytes = 0;
    c->body_seen_ms = now_ms;
    c->body_left_ms = MIN_OF(left_ms, most_ms);
    return c->body_left_ms;
}
