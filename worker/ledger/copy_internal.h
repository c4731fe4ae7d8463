/*
 * struct second_copy from the inside, for second_copy.c (logs and waits), copy_send.c (appends and
 * drops), copy_compare.c (lengths) and copy_read.c (logs that are read back).
 */
#ifndef RG_LEDGER_COPY_INTERNAL_H
#define RG_LEDGER_COPY_INTERNAL_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/os/loop.h"
#include "worker/ledger/copy_log.h"
#include "worker/ledger/second_copy.h"

enum {
    COPY_FRESH_MAX = 16 << 20,    /* bytes of one turn that are sent from memory */
    COPY_FRESH_KEPT = 256 << 10,  /* memory that an empty buffer keeps */
    COPY_IN_FLIGHT_MAX = 8 << 20, /* bytes from the journal without an answer */
    COPY_TICK_MS = 50,            /* interval of looks at the keeper's table */
    COPY_FULL_MS = 1000,          /* pause after the store, or the disk, was full */
    COPY_READS_MAX = 4,           /* logs that are read at a time */
};

enum copy_state {
    COPY_CLOSED,    /* not owned: nothing is answered */
    COPY_COMPARING, /* lengths are asked for */
    COPY_OPEN,
    COPY_FENCED, /* the keeper has to decide */
};

struct copy_place {
    struct second_copy *copy;
    uint32_t index;
    struct journal *journal;
    enum copy_state state;
    uint64_t epoch;                 /* the keeper gave it; 0: none */
    unsigned round;                 /* answers of an older comparison are ignored */
    bool asked;                     /* for lengths */
    bool verifies;                  /* last common records are sent again */
    bool served;                    /* a comparison under this epoch has ended */
    bool reported;                  /* whole */
    bool away;                      /* the store does not answer, which the log has */
    uint64_t full_ms;               /* nothing is sent before */
    uint64_t fenced_ms;             /* clock_boot_ms of the refusal */
    uint64_t n_behind, told_behind; /* records */
    size_t in_flight;               /* bytes */
    struct list_head behind;        /* struct copy_log */
    struct list_head unasked;       /* unread logs (copy_log.unasked), the next one first */
    size_t n_unread, n_reading;     /* logs; the latter are no longer in the list */
    uint64_t read_ms;               /* nothing is read before; 0: the journal takes records */
    bool proved;                    /* in this round a record of a log that was read was sent */
    bool told_read_back;            /* the keeper knows that no log is unread */
};

struct copy_wait {
    struct list_item item, all; /* in its log or among those due; among all waits */
    struct copy_log *log;       /* NULL: due */
    size_t n;                   /* records that the log must have */
    struct ledger_done done;
    struct journal *journal; /* whose durability is waited for afterwards */
    uint64_t since_ms;
    struct err why;
};

/* A record of this turn. */
struct copy_fresh {
    struct copy_log *log; /* NULL: dropped */
    size_t n, at, size;
};

struct second_copy {
    struct second_copy_options o;
    struct map logs; /* by session */
    VEC(struct copy_place *) places;
    uint64_t calls; /* number of the next append */
    struct list_head waits, due;
    bool hopeless; /* a wait has begun that cannot end well */
    bool ending;   /* answers of the store do not matter */
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

/* Sends the end of a session, which is all that the journal has, as record n: the store's log has n
 * records or none. */
void copy_move_end(struct copy_log *l, size_t n);

/* Marks the session as lost: nothing of it is sent any more. */
void copy_mark_lost(struct copy_log *l);
void copy_end_wait(struct second_copy *c, struct copy_wait *w, const struct err *why);
void copy_run_due(struct second_copy *c);
void copy_check_waits(struct copy_log *l);
void copy_fail_waits(struct copy_log *l, const struct err *why);
void copy_on_work(struct loop_task *t);

/* copy_send.c: sends what the logs of an open place lack. Reads records of a log from the journal
 * into `ret`, one after the other, with their ends. */
void copy_send(struct copy_place *p);
int copy_read_journal(const struct copy_log *l, size_t from, size_t n, struct buf *ret,
                      size_t *ends, struct err *e);

/* copy_compare.c: asks for the lengths of all logs; the connection was lost; marks a log as one
 * that must be read before its session is served, or does no longer. */
void copy_compare(struct copy_place *p);
void copy_lose(struct copy_place *p, const char *why);
void copy_begin_reading(struct copy_log *l);
void copy_end_reading(struct copy_log *l);

/* copy_read.c: reads unread logs of an open place, a few at a time. */
void copy_read_unread(struct copy_place *p);

/* Reports the end of a log's reading to the session's requests. */
void copy_report_read(const struct copy_log *l);

#endif
