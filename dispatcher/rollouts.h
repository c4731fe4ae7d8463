/*
 * struct group: n rollouts of one task, as a trainer submitted it, and its state.
 *
 *   group     waiting -> running -> finished | partial | failed | cancelled       (settled, once)
 *   rollout   waiting -claim-> running -end-> succeeded | failed | waiting (retry) | cancelled
 *             succeeded -the fleet has lost its session-> lost | waiting (retry)
 *   attempt   claimed -> ended (ok, timeout, error, infra, cancelled)             (once)
 *   delivery  none -> offered -next-> taken -ack-> (the group is removed)
 *                        ^------ lease over, or returned ------'
 *
 * A waiting group is small: its submission as JSON text, the numbers that are read from it, and its
 * labels. Its first claim makes the rollouts. Memory: the book (book.h) owns groups; a group owns
 * its rollouts, these their attempts and results.
 */
#ifndef RG_DISPATCHER_ROLLOUTS_H
#define RG_DISPATCHER_ROLLOUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct err;
struct json;

enum {
    ATTEMPT_ID_LEN = 32, /* hex digits */
    SESSION_ID_MAX = 48,
};

enum group_state {
    GROUP_WAITING, /* no attempt yet */
    GROUP_RUNNING,
    GROUP_FINISHED, /* n rollouts succeeded */
    GROUP_PARTIAL,  /* at least `min` rollouts succeeded, and no more can */
    GROUP_FAILED,
    GROUP_CANCELLED,
    GROUP_STATES
};

enum rollout_state {
    ROLLOUT_WAITING,
    ROLLOUT_RUNNING,
    ROLLOUT_SUCCEEDED,
    ROLLOUT_FAILED,
    ROLLOUT_CANCELLED,
    ROLLOUT_LOST, /* had succeeded, but its session is lost with a node of the fleet */
    ROLLOUT_STATES
};

enum outcome {
    OUTCOME_OK,
    OUTCOME_TIMEOUT,
    OUTCOME_ERROR,
    OUTCOME_INFRA,
    OUTCOME_CANCELLED,
    OUTCOMES
};

/* What follows a timeout, an error or an infrastructure failure. KEEP: the attempt counts anyway,
 * if its session could be finalized. RETRY: a further attempt is made while attempts are left.
 * DROP: the rollout fails. */
enum on { ON_KEEP, ON_RETRY, ON_DROP };

enum group_delivery { DELIVERY_NONE, DELIVERY_OFFERED, DELIVERY_TAKEN };

extern const char *const group_state_names[GROUP_STATES];
extern const char *const rollout_state_names[ROLLOUT_STATES];
extern const char *const outcome_names[OUTCOMES];

/* Values of a submission. Durations in milliseconds; deadline_ms 0: no deadline. */
struct group_spec {
    struct str id, queue, runner; /* queue absent: the group is only waited for by its id */
    uint32_t n;                   /* number of wanted rollouts */
    uint32_t extra;               /* further rollouts, begun in case some fail or are slow */
    uint32_t min; /* rollouts that are enough for GROUP_PARTIAL if no more can succeed */
    uint32_t attempts,
        infra_attempts; /* most attempts of a rollout: not counting infra ends; counting them */
    enum on on[OUTCOME_INFRA + 1]; /* by outcome; the element of `ok` is unused */
    double fail_reward;
    bool external_reward; /* the trainer computes rewards: an unknown reward is not a failure */
    bool has_version;
    int64_t version; /* version of the policy at submission */
    int64_t priority;
    uint64_t run_timeout_ms, deadline_ms;
};

struct queue;
struct runner;
struct rollout;

/* A time later than any clock: the attempt's executor does not know the attempt yet. */
#define LEASE_NOT_BEGUN UINT64_MAX

struct attempt {
    char id[ATTEMPT_ID_LEN + 1];
    char session[SESSION_ID_MAX];
    struct rollout *rollout;
    /* the rollout's attempt before this one. Attempts are kept until the group is removed, so that
     * a repeated end gets the same answer */
    struct attempt *before;
    char *executor;         /* name of the executor that claimed it */
    uint32_t number;        /* number of the attempt in its rollout, from 1 */
    uint64_t claimed_at_ms; /* wall clock */
    uint64_t claim_epoch;   /* epoch of the session's place then; 0: unknown, as after a replay */
    uint64_t found_epoch;   /* latest epoch under which the session was found; 0: none (losses.c) */
    bool sought;            /* whether the session is there is being asked */
    uint64_t lease_due_ms;  /* monotonic; 0: not set yet (after a replay); LEASE_NOT_BEGUN */
    bool ended;
    /* the attempt's end is being processed, so the lease does not matter */
    bool ending;
    /* the attempt's lease ran out, so a report of its executor is too late */
    bool lost;
    /* the attempt never began, because the gateway refuses its session for good */
    bool refused;
    const char *kill;           /* why the executor must end it, or NULL */
    enum outcome outcome;       /* set when it has ended */
    enum rollout_state verdict; /* verdict of the end on the rollout: WAITING means a retry */
    struct list_item entry;     /* in the list of running attempts */
};

/* Reason of attempts whose session was lost. */
#define SESSION_LOST_REASON "the session is lost with a node of the fleet"

/* Result of a rollout's last ended attempt; JSON texts are "" if there is none. */
struct result {
    enum outcome outcome;
    bool has_outcome;
    bool has_reward, has_finished, finished;
    bool beside; /* the end was not the fault of the attempt's runner, whatever the outcome */
    double reward;
    uint64_t trajectories, trained_tokens;
    bool has_versions;
    int64_t min_version, max_version;
    char *reward_info, *timings; /* JSON objects */
    char *reason, *log, *log_tail;
};

struct rollout {
    struct group *group;
    uint32_t index;
    enum rollout_state state;
    bool reserved;           /* a claim is making the rollout's session */
    uint32_t errors, infras; /* number of failed attempts of each kind */
    uint64_t not_before_ms;  /* wall clock: end of the back-off before the next attempt */
    struct attempt *last;    /* newest attempt, or NULL */
    /* name of the executor that failed it last; other executors are preferred */
    char *avoid;
    struct result result;
};

/* A label of a group; its strings follow the group's last label, in the same block. */
struct group_label {
    struct str name, value;
};

struct group {
    struct group_spec spec;
    char *text; /* the submission, a JSON object */
    size_t text_len;
    struct group_label *labels; /* labels of the text, so that filters need not parse it */
    size_t n_labels;
    struct queue *queue; /* NULL: the group has no queue */
    struct runner *runner;
    uint64_t seq; /* position in the order of submission */
    uint64_t submitted_at_ms, first_end_at_ms, settled_at_ms; /* wall clock */
    enum group_state state;
    enum group_delivery delivery;
    uint32_t deliveries; /* without a queue: 1 after the first answer that showed it settled */
    /* how long a trainer may keep the group after taking it */
    uint64_t lease_ms;
    uint64_t taken_until_ms;              /* monotonic: end of that time; 0: not set yet */
    uint32_t waiting, running, succeeded; /* numbers of rollouts in each state */
    bool overdue;
    bool telling, told;           /* the Redis sinks may have its entry; they have it */
    uint32_t sought;              /* sessions of members that are being asked for (losses.c) */
    struct rollout *rollouts;     /* n + extra of them, or NULL: the group has not begun */
    struct list_item lane_entry;  /* in its lane, while a rollout waits (book_lanes.h) */
    bool in_lane, resting;        /* a rollout waits; lane_entry is in `resting` */
    uint64_t due_ms;              /* wall clock: end of the group's rest */
    struct list_item queue_entry; /* in the queue's list of all groups, by seq */
    struct list_item
        settled_entry; /* in the queue's list of settled groups, by the time of settling */
    struct list_item all_entry;
};

/* Reports whether the group can no longer change. */
static inline bool group_settled(const struct group *g)
{
    return g->state >= GROUP_FINISHED;
}

/* Reports whether a trainer, or a sink, may have the settled group, whose content then never
 * changes. */
static inline bool group_is_delivered(const struct group *g)
{
    return g->deliveries > 0 || g->telling || g->told;
}

static inline uint32_t group_rollouts(const struct group *g)
{
    return g->spec.n + g->spec.extra;
}

/* Returns when the first waiting rollout of the group may begin; 0: at once; UINT64_MAX: a claim is
 * making the session of each of them. */
uint64_t group_due_ms(const struct group *g);

/* Refuses a member of a batch's `defaults` that is no field of a group, or `id`. */
int group_check_defaults(const struct json *defaults, struct err *e);

/* Reads and checks one submission: `body`, with `defaults` (or NULL) for missing members; `id` (or
 * absent) is the one in the path. Strings of *ret are borrowed from the trees. Returns -1 with
 * ERR_INVALID, which names the field; `where` ("groups[3]." or "") precedes the name. */
int group_parse(const struct json *body, const struct json *defaults, struct str id,
                const char *where, struct group_spec *ret, struct err *e);

/* Writes the submission with its defaults filled in, as one JSON object. This is the text that is
 * kept and compared. */
void group_write_submission(const struct json *body, const struct json *defaults, struct str id,
                            struct buf *out);

/* Makes a group that copies what it needs of the submission. */
struct group *group_new(const struct group_spec *spec, const struct json *submission);
void group_free(struct group *g);

/* Returns the value of the group's label with that name, borrowed; absent: it has none. */
struct str group_label(const struct group *g, struct str name);

/* Reports whether sinks get the sessions of attempts that count: unless session.sink is false. */
bool group_goes_to_sinks(const struct group *g);

/* Writes the body of a member's finalize (with `checked`, which also requires what an attempt needs
 * to count), or the options of its export for sinks. */
void group_write_export(const struct group *g, bool checked, struct buf *out);

/* Makes the rollouts, all of which wait. */
void group_begin(struct group *g);

void result_done(struct result *r);

#endif
