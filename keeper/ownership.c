/*
 * Which places this node owns.
 *
 *   claim    a place of the node's block that has no owner, or that this node owned before. A claim
 *            whose answer was lost is made again at the next beat
 *   renew    all places in one call. A place that is fenced has another owner, or the store has
 *            forgotten our claim: then it is claimed with the base that we know
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "keeper/keeper_state.h"

enum { CLAIM_TRIES = 3 };

/* --- claims --- */

struct place_claim {
    struct fleet_keeper *k;
    uint32_t index;
    uint64_t known, seen;
    uint64_t sent_ms;
    unsigned tries;
    bool adopts;  /* this node has not got the journal of the place */
    bool bare;    /* some of its records are in the store alone, as far as this node knows */
    bool vacates; /* a place without sessions is released again */
    bool taken;   /* the store may have forgotten that the place was taken */
    bool lost;    /* the store may have forgotten that a lost node had the place later */
};

static void on_claimed(void *ctx, const struct store_answer *a);

static void send_claim(struct place_claim *c, uint64_t beat)
{
    struct fleet_keeper *k = c->k;
    const struct store_claim claim = {
        .place = c->index,
        .block = c->index == FLEET_DISPATCHER ? k->entry.block : c->index / FLEET_BLOCK_SIZE,
        .me = str_cstr(k->name),
        .beat = beat,
        .known = c->known,
        .incomplete = c->taken,
        .bare = c->bare,
        .restores = c->lost,
        .seen = c->seen,
        .reads = k->entry.newest_record};

    c->tries++;
    c->sent_ms = clock_boot_ms();
    store_claim(k->store, &claim, (struct store_call){on_claimed, c});
}

/* True if this node has claimed the place without records under this epoch. */
static bool is_bare(const struct fleet_keeper *k, uint32_t index, uint64_t epoch)
{
    struct fleet_own_place own;

    return place_table_find_own(k->table, index, &own) && own.bare_epoch == epoch;
}

/* True if this node has claimed the place without records, maybe before its last start, and has not
 * read all yet. */
static bool lacks_records(const struct fleet_keeper *k, uint32_t index)
{
    struct fleet_own_place own;

    if (!place_table_find_own(k->table, index, &own) || own.epoch == 0)
        return ownership_is_unread(k, index);
    return own.bare_epoch == own.epoch && own.whole_epoch != own.epoch;
}

static void start_claim(struct fleet_keeper *k, struct place_claim what, uint64_t beat)
{
    struct place_claim *c = mem_zalloc(sizeof(*c));

    *c = what;
    c->k = k;
    c->bare = c->adopts || lacks_records(k, c->index);
    *vec_push(&k->claims) = c->index;
    send_claim(c, beat);
}

static void claim_place(struct fleet_keeper *k, uint32_t index, uint64_t beat, uint64_t known)
{
    bool taken = (beat == 0 || known > 0) && place_table_is_taken(k->table, index);

    start_claim(k, (struct place_claim){.index = index, .known = known, .taken = taken}, beat);
}

void ownership_claim_first(struct fleet_keeper *k, uint32_t index, bool lost)
{
    const struct place_claim what = {.index = index,
                                     .known = ownership_read_base(k, index),
                                     .taken = !lost && place_table_is_taken(k->table, index),
                                     .lost = lost};

    start_claim(k, what, 0);
}

void ownership_claim_seen(struct fleet_keeper *k, const struct seen_place *p)
{
    start_claim(k,
                (struct place_claim){.index = p->index,
                                     .seen = p->newest,
                                     .adopts = !ownership_has_folder(k, p->index)},
                p->beat);
}

void ownership_adopt(struct fleet_keeper *k, const struct seen_place *p)
{
    start_claim(
        k,
        (struct place_claim){.index = p->index, .seen = p->newest, .adopts = true, .vacates = true},
        p->beat);
}

bool ownership_is_claimed(const struct fleet_keeper *k, uint32_t index)
{
    for (size_t i = 0; i < k->claims.n; i++)
        if (k->claims.at[i] == index)
            return true;
    return false;
}

void ownership_end_call(struct fleet_keeper *k, uint32_t index)
{
    for (size_t i = 0; i < k->claims.n; i++)
        if (k->claims.at[i] == index) {
            k->claims.at[i] = vec_pop(&k->claims);
            return;
        }
}

static bool is_doubted(const struct fleet_keeper *k, uint32_t index)
{
    struct fleet_own_place own;

    return place_table_find_own(k->table, index, &own) && own.doubt_ms > 0;
}

/* Enters since when records of a place that is claimed may be missing. A claim of a place that the
 * store has forgotten does not end a doubt. */
static void enter_doubt(struct fleet_keeper *k, const struct place_claim *c, uint64_t doubt_ms)
{
    char since[CLOCK_TEXT_MAX];

    if (doubt_ms > 0 || c->known == 0)
        place_table_set_doubt(k->table, c->index, doubt_ms);
    if (doubt_ms > 0)
        log_error(NULL, "records of a lost node may be missing: the store was replaced meanwhile",
                  place_table_log("index", c->index),
                  LOG_T("since", clock_wall_text(doubt_ms, since)));
}

/* Enters a place that is ours now. `forgotten`: by the store, now or before an earlier claim of
 * this node, so that a node with a newer base may claim it yet. No node has one if this node
 * renewed the place within the last lease. */
static void enter_place(struct fleet_keeper *k, uint32_t index, uint64_t epoch, uint64_t base,
                        bool forgotten, bool adopted)
{
    uint64_t now_ms = clock_boot_ms(), answers_ms = 0;

    if (forgotten && !place_table_may_read(k->table, index, now_ms, k->lease_ms))
        answers_ms = now_ms + k->lease_ms;
    /* before anything is recorded */
    ownership_write_base(k, index, base, is_bare(k, index, epoch));
    place_table_set_base(k->table, index, base);
    if (!place_table_set_own(k->table, index, epoch, answers_ms)) {
        log_error(NULL, "a node owns 256 places at most, ignoring",
                  place_table_log("index", index));
        return;
    }
    metrics_count_at(k->h->page, METRIC_fleet_claims,
                     is_doubted(k, index) ? METRIC_FLEET_CLAIM_DOUBTFUL
                     : adopted            ? METRIC_FLEET_CLAIM_LOST
                     : forgotten          ? METRIC_FLEET_CLAIM_FORGOTTEN
                                          : METRIC_FLEET_CLAIM_OWN,
                     0, 1);
    log_info(NULL, adopted ? "place adopted" : "place claimed", place_table_log("index", index),
             LOG_U("epoch", epoch));
}

/* True if a place that we have owned until now has another owner. */
static bool is_replaced(const struct place_claim *c, const struct store_answer *a)
{
    return place_table_own_epoch(c->k->table, c->index) != 0 &&
           (a->verdict == STORE_NEWER ||
            (a->verdict == STORE_ALIVE && !str_eq_c(a->owner, c->k->name)));
}

static void lose_place(const struct place_claim *c, const struct store_answer *a)
{
    metrics_count(c->k->h->page, METRIC_fleet_fenced, 1);
    log_error(NULL, "another node owns a place of this node now",
              place_table_log("index", c->index), LOG_S("owner", a->owner),
              LOG_U("claim", a->base));
    (void)place_table_set_own(c->k->table, c->index, 0, 0);
}

static void log_refusal(const struct place_claim *c, const struct store_answer *a)
{
    if ((c->adopts || c->index == FLEET_DISPATCHER) && a->verdict == STORE_ALIVE)
        log_debug(NULL, "another node was faster", place_table_log("index", c->index),
                  LOG_S("owner", a->owner));
    else if (a->verdict != STORE_LOST)
        log_warn(NULL, "place not claimed, ignoring", place_table_log("index", c->index),
                 LOG_T("reason", a->why ? a->why : store_verdict_name(a->verdict)),
                 LOG_S("owner", a->owner));
}

/* True if a place that is claimed in a drain, so that no process will serve it, can be released:
 * the store has all that was answered. */
static bool is_left(const struct place_claim *c, const struct store_answer *a)
{
    return ownership_is_leaving(c->k) && (c->index == FLEET_DISPATCHER || c->adopts) && a->whole;
}

static void on_claimed(void *ctx, const struct store_answer *a)
{
    struct place_claim *c = ctx;
    struct fleet_keeper *k = c->k;
    bool done = a->verdict == STORE_DONE && a->epoch <= FLEET_EPOCH_MAX;

    if (k->ending) {
        free(c);
        return;
    }
    keeper_check_answer(k, a);
    if (a->verdict == STORE_ALIVE && str_eq_c(a->owner, k->name) && c->tries < CLAIM_TRIES) {
        send_claim(c, a->beat); /* an earlier try was done, but its answer was lost */
        return;
    }
    if (done && c->vacates && a->whole && a->n_logs == 0) {
        ownership_end_call(k, c->index);
        ownership_release(k, c->index, a->epoch);
        free(c);
        return;
    }
    if (done) {
        enter_doubt(k, c, a->doubt_ms);
        if (c->bare)
            place_table_set_bare(k->table, c->index, a->epoch);
        enter_place(k, c->index, a->epoch, a->base, c->known || !a->whole, c->adopts);
        place_table_set_renewed(k->table, c->index, c->sent_ms);
        if (is_left(c, a))
            place_table_report_left(k->table, c->index, a->epoch);
    } else {
        if (is_replaced(c, a))
            lose_place(c, a);
        else
            log_refusal(c, a);
        k->listed_ms = 0; /* its entry has changed */
    }
    ownership_end_call(k, c->index);
    free(c);
    if (done && k->claims.n == 0 && k->step == JOIN_PLACES)
        keeper_list(k); /* after a refusal the next beat does it */
}

/* True if the store says that this node has the place. */
static bool is_ours(const struct fleet_keeper *k, const struct seen_place *p)
{
    return strcmp(p->owner, k->name) == 0;
}

bool ownership_is_incomplete(const struct fleet_keeper *k, const struct seen_place *p)
{
    return is_ours(k, p) && p->index != FLEET_DISPATCHER && !p->whole &&
           !place_table_own_epoch(k->table, p->index) && !ownership_has_folder(k, p->index);
}

/* True if a start must claim a place: this build reads its records, and it is ours, or one of our
 * block without an owner that has sessions. Sessions here of a place without an owner are put aside
 * first. */
static bool is_claimable(const struct fleet_keeper *k, const struct seen_place *p)
{
    if (p->index == FLEET_DISPATCHER || p->stale || p->version > k->entry.newest_record ||
        ownership_is_incomplete(k, p))
        return false;
    return is_ours(k, p) ||
           (!p->owner[0] && !p->vacant && p->index / FLEET_BLOCK_SIZE == k->entry.block &&
            !ownership_has_folder(k, p->index));
}

bool ownership_is_unheard(const struct fleet_keeper *k, const struct seen_place *p)
{
    return is_ours(k, p) && is_claimable(k, p) && !place_table_own_epoch(k->table, p->index) &&
           !ownership_is_claimed(k, p->index);
}

bool ownership_continue(struct fleet_keeper *k, const struct seen_place *p)
{
    const struct seen_node *self = fleet_view_node(&k->view, k->name);

    if (!k->h->upgraded || !is_ours(k, p) || !self ||
        strcmp(self->entry.instance, k->entry.instance) != 0)
        return false;
    place_table_set_doubt(k->table, p->index, p->doubt_ms);
    if (ownership_is_unread(k, p->index))
        place_table_set_bare(k->table, p->index, p->epoch);
    enter_place(k, p->index, p->epoch, p->base, !p->whole, false);
    return true;
}

/* Claims the places that the store has. Returns the number of those of the block that are owned
 * now; *claims: of those that are claimed. */
static size_t claim_known(struct fleet_keeper *k, size_t *claims)
{
    struct map_slot *slot;
    size_t owned = 0;

    *claims = 0;
    for (size_t at = 0; (slot = map_next(&k->view.places, &at));) {
        const struct seen_place *p = slot->value;
        bool of_block = p->index / FLEET_BLOCK_SIZE == k->entry.block;

        if (!is_claimable(k, p))
            continue;
        if (place_table_own_epoch(k->table, p->index) || ownership_continue(k, p)) {
            owned += of_block;
        } else {
            ownership_claim_seen(k, p);
            *claims += of_block;
        }
    }
    return owned;
}

size_t ownership_claim_block(struct fleet_keeper *k, size_t wanted)
{
    uint32_t first = k->entry.block * FLEET_BLOCK_SIZE;
    size_t claimed = 0, owned;

    if (ownership_is_leaving(k))
        return wanted;
    owned = claim_known(k, &claimed);
    if (k->step == JOIN_PLACES)
        claimed += ownership_claim_folders(k);
    for (uint32_t i = 0; i < FLEET_BLOCK_SIZE && owned + claimed < wanted; i++) {
        const struct seen_place *p = fleet_view_place(&k->view, first + i);

        if (p && !p->vacant)
            continue;
        if (place_table_own_epoch(k->table, first + i)) {
            owned++;
        } else if (!p && !ownership_is_claimed(k, first + i)) {
            ownership_claim_first(k, first + i, false);
            claimed++;
        } else if (p && ownership_put_vacant(k, first + i)) {
            claim_place(k, first + i, p->beat, 0);
            claimed++;
        }
    }
    if (owned + claimed < wanted)
        keeper_fail(k, "other nodes have places of this node's 256 indexes, and too few are left: "
                       "give this node another --fleet-node and --state-dir");
    return owned;
}

/* A place that this node has lost is not claimed for its worker, which has sessions of before. */
void ownership_claim_needed(struct fleet_keeper *k)
{
    const struct board *b = k->h->board;

    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++) {
        enum board_state state = atomic_load(&b->slots[BOARD_WORKER0 + i].state);
        uint32_t index = board_index(b, i);
        const struct seen_place *p = fleet_view_place(&k->view, index);

        if (state == BOARD_EMPTY || state == BOARD_RETIRING ||
            place_table_own_epoch(k->table, index) || ownership_is_claimed(k, index))
            continue;
        if ((!p || p->vacant) && index / FLEET_BLOCK_SIZE == k->entry.block)
            claim_place(k, index, p ? p->beat : 0, 0);
        else if (p && is_ours(k, p) && is_claimable(k, p))
            claim_place(k, index, p->beat, 0);
    }
}

bool ownership_is_leaving(const struct fleet_keeper *k)
{
    return atomic_load(&k->h->board->leaving) != 0;
}

bool ownership_is_ending(const struct fleet_keeper *k)
{
    return atomic_load(&k->h->board->draining) != 0;
}

/* --- renewals --- */

/* The base of a place of this node. The renewal may have raised the store's, unheard. */
static uint64_t find_base(const struct fleet_keeper *k, const struct store_renewal *at)
{
    return at->whole ? at->epoch : place_table_own_base(k->table, at->place);
}

/* The store refuses our epoch. It has forgotten our claim, or the entry stems from our own claim,
 * whose answer was lost, or from another node's: the store decides. */
static void on_fenced(struct fleet_keeper *k, const struct store_renewal *at, uint64_t base)
{
    uint64_t own = find_base(k, at);

    if (place_table_own_epoch(k->table, at->place) != at->epoch || k->child.draining)
        return; /* claimed again meanwhile, or by the next start */
    if (base == 0)
        fleet_view_note_emptied(&k->view);
    if (base <= own)
        log_warn(NULL, "the store has forgotten a place of this node, claiming it again",
                 place_table_log("index", at->place), LOG_U("epoch", at->epoch));
    claim_place(k, at->place, 0, own);
    if (!k->listing)
        keeper_list(k); /* the store may lack other entries of this node */
}

static void note_renewed(struct fleet_keeper *k, const struct store_renewal *r, uint64_t server)
{
    place_table_set_renewed(k->table, r->place, k->sent_ms);
    if (r->whole && r->server == server)
        place_table_set_doubt(k->table, r->place, 0);
    if (!r->whole ||
        (place_table_own_base(k->table, r->place) == r->epoch && !is_bare(k, r->place, r->epoch)))
        return;
    ownership_write_base(k, r->place, r->epoch, false);
    place_table_set_base(k->table, r->place, r->epoch); /* as in the store */
    place_table_set_bare(k->table, r->place, 0);
}

static void on_renewed(void *ctx, const struct store_answer *a)
{
    struct fleet_keeper *k = ctx;
    size_t refused = 0;

    k->renewing = false;
    keeper_check_answer(k, a);
    if (a->verdict != STORE_DONE) {
        keeper_use_beats(k, a);
        if (k->child.draining)
            keeper_end_drain(k);
        return;
    }
    fleet_view_raise_edition(&k->view, a->edition);
    place_table_set_orders(k->table, k->view.stored_edition); /* before the node answers again */
    place_table_set_server(k->table, a->server);
    place_table_set_reached(k->table, k->sent_ms);
    for (size_t i = 0; i < k->renewals.n; i++) {
        if (refused < a->n_refused && a->refused[refused].i == i)
            on_fenced(k, &k->renewals.at[i], a->refused[refused++].base);
        else
            note_renewed(k, &k->renewals.at[i], a->server);
    }
    if (k->child.draining)
        keeper_end_drain(k);
    else
        keeper_use_beats(k, a);
}

void ownership_renew(struct fleet_keeper *k)
{
    struct fleet_own_place own;

    if (k->renewing)
        return;
    vec_clear(&k->renewals);
    for (size_t at = 0; place_table_next_own(k->table, &at, &own);) {
        if (own.epoch > 0 &&
            !ownership_is_claimed(k, own.index)) /* whose claim changes the epoch */
            *vec_push(&k->renewals) = (struct store_renewal){
                .place = own.index,
                .epoch = own.epoch,
                .whole = own.whole_epoch == own.epoch,
                .left = k->child.draining && own.left_epoch == own.epoch,
                .replicated = k->replicated,
                .server = own.server,
                .version = MAX_OF(own.version,
                                  own.doubt_ms > 0 ? k->entry.newest_record : k->usual_record)};
    }
    k->renewing = true;
    k->renews_last = k->child.draining;
    k->sent_ms = clock_boot_ms();
    store_renew(k->store, str_cstr(k->name), k->renewals.at, k->renewals.n,
                (struct store_call){on_renewed, k});
}
