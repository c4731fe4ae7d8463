/*
 * The state of struct second_copy, for its files: second_copy.c (logs and waits), copy_send.c
 * (appends and drops), copy_compare.c (lengths), copy_read.c (logs that are read back) and
 * copy_doubt.c (logs that may lack records).
 */
#ifndef RG_FLEET_COPY_INTERNAL_H
#define RG_FLEET_COPY_INTERNAL_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/fleet/copy_log.h"
#include "common/fleet/second_copy.h"
#include "common/os/loop.h"

enum {
    COPY_FRESH_MAX = 16 << 20,    /* bytes of a loop iteration that are sent from memory */
    COPY_FRESH_KEPT = 256 << 10,  /* memory that an empty buffer keeps */
    COPY_IN_FLIGHT_MAX = 8 << 20, /* bytes in flight up to which the journal is read */
    COPY_TICK_MS = 50,            /* interval of checks of the place table */
    COPY_FULL_MS = 1000,          /* pause after the store, or the disk, was full */
    COPY_READS = 4,               /* logs that are read at a time, by default */
};

enum copy_state {
    COPY_CLOSED,    /* not owned: no request is answered */
    COPY_COMPARING, /* lengths are compared */
    COPY_OPEN,
    COPY_FENCED, /* the store has refused the epoch, and the keeper must decide */
};

struct copy_place {
    struct second_copy *copy;
    uint32_t index;
    struct journal *journal;
    enum copy_state state;
    uint64_t epoch;             /* the keeper's; 0: the place is not owned */
    unsigned round;             /* number of the comparison; answers of older ones are ignored */
    bool asked;                 /* the lengths were requested */
    bool verifies;              /* the last common record of each log is sent again */
    bool served;                /* a comparison under this epoch has ended */
    bool reported_whole;        /* the place table shows the place as whole */
    bool forgotten;             /* the store had forgotten the place: others may have recorded */
    uint32_t version;           /* newest version of a record that was added */
    uint64_t server;            /* the store's server that was compared; 0: unknown */
    uint64_t reported_server;   /* the server that the place table names as having all */
    uint64_t compared_ms;       /* clock_boot_ms when the last comparison ended */
    uint64_t doubt_ms;          /* time since which records may be missing; 0: none is */
    uint64_t mark_ms;           /* time before which no log is marked; 0: no pause */
    size_t n_marked;            /* sessions that were marked */
    bool marks_last;            /* the store does not: it remembers which sessions are complete */
    bool away;                  /* the store does not answer, which was logged */
    bool level;                 /* nothing from before the last comparison is behind */
    uint64_t full_ms;           /* time before which nothing is sent */
    uint64_t fenced_ms;         /* clock_boot_ms of the refusal */
    uint64_t n_behind;          /* records that the store lacks */
    uint64_t reported_behind;   /* n_behind that the place table shows */
    size_t in_flight;           /* bytes of appends without an answer */
    struct list_head behind;    /* copy_log.behind: logs that have more to send */
    struct list_head unasked;   /* copy_log.unasked: logs to read, the next one first */
    size_t n_logs;              /* sessions with records here or in the store */
    bool reported_empty;        /* the place table shows that no session has records */
    size_t n_unread, n_reading; /* unread logs; those being read, which left the list */
    uint64_t read_ms;           /* time before which no log is read; 0: no pause */
    bool proved;                /* a record of a log that was read was sent in this round */
};

struct copy_wait {
    struct list_item item, all; /* in copy_log.waits or second_copy.due; in second_copy.waits */
    struct copy_log *log;       /* NULL: the wait is over */
    size_t n;                   /* number of records that the store must have */
    struct copy_done done;
    struct journal *journal; /* journal that is waited for afterwards */
    uint64_t since_ms;
    struct err why; /* error that ends it; kind ERR_NONE: none */
};

/* A record of this loop iteration, whose bytes are in memory. */
struct copy_fresh {
    struct copy_log *log; /* NULL: the log was deleted */
    size_t n, at, size;   /* number in the log; bytes in fresh_bytes */
};

struct second_copy {
    struct second_copy_options o;
    const struct copy_hooks *hooks; /* NULL: the places have no files */
    void *hooks_ctx;
    struct map logs; /* by session */
    VEC(struct copy_place *) places;
    uint64_t calls; /* number of the next append */
    struct list_head waits, due;
    bool hopeless; /* a wait has begun that must fail */
    bool ending;   /* answers of the store are ignored */
    VEC(struct copy_fresh) fresh;
    struct buf fresh_bytes;
    struct loop_task work;
    struct loop_timer tick;
};

/* second_copy.c */
struct copy_log *copy_find(const struct second_copy *c, struct str session);
struct copy_log *copy_get(struct second_copy *c, struct copy_place *p, struct str session);
void copy_set_stored(struct copy_log *l, size_t n);
void copy_send_later(struct copy_log *l);
void copy_send_again(struct copy_log *l, size_t n);
void copy_end_drop(struct copy_log *l);

/* Sends the end of a session, the only record in the journal, as record n of the store's log, which
 * has n records or none. */
void copy_move_end(struct copy_log *l, size_t n);

/* Marks the session as lost: none of its records is sent any longer. */
void copy_mark_lost(struct copy_log *l);
void copy_run_due(struct second_copy *c);
void copy_check_waits(struct copy_log *l);
void copy_fail_waits(struct copy_log *l, const struct err *why);
void copy_on_work(struct loop_task *t);

/* copy_send.c: sends records that the logs of an open place lack. */
void copy_send(struct copy_place *p);

/* Stops sending: the store has refused the epoch, and the keeper must decide. */
void copy_fence(struct copy_place *p, uint64_t epoch);

/* Reads n records of a log, from number `from` on, from the journal. Appends them to `ret`, with
 * their ends in `ends`. Returns -1 with e. */
int copy_read_journal(const struct copy_log *l, size_t from, size_t n, struct buf *ret,
                      size_t *ends, struct err *e);

/* copy_compare.c: requests the lengths of all logs. */
void copy_compare(struct copy_place *p);

/* Handles the loss of the connection: the lengths must be compared again. */
void copy_lose(struct copy_place *p, const char *why);

/* Logs that the store answers again, if its loss was logged: it has taken a record, or has all. */
void copy_regain(struct copy_place *p);

/* Connects again if the server refuses an epoch that the keeper has renewed since. */
void copy_check_fence(struct copy_place *p);

/* Compares again if the keeper has reached another server since. */
void copy_check_server(struct copy_place *p);

/* Marks a log as unread: it must be read before its session is served. end_reading: it was read, or
 * cannot be. */
void copy_begin_reading(struct copy_log *l);
void copy_end_reading(struct copy_log *l);

/* copy_doubt.c: marks a log that may lack records, and that was read. */
void copy_mark_doubt(struct copy_log *l);

/* Marks all logs of an open place that may lack records, when they were read. */
void copy_mark_all(struct copy_place *p);

/* copy_read.c: reads unread logs of an open place, a few at a time. */
void copy_read_unread(struct copy_place *p);

/* Reports the end of a log's reading to the session's requests. */
void copy_report_read(struct copy_log *l);

#endif
