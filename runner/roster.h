/*
 * struct roster: a runner file, read: how each runner's attempts are run here. A trainer names a
 * runner; only this file contains what it executes. All mistakes of a file are reported at once.
 */
#ifndef RG_RUNNER_ROSTER_H
#define RG_RUNNER_ROSTER_H

#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/codec/json.h"

enum {
    ROSTER_RUNNERS_MAX = 256, /* the gateway's limit for one executor */
    ROSTER_NAME_MAX = 128,
    ROSTER_SLOTS_MAX = 10000,
    ROSTER_FILE_MAX = 1 << 20 /* bytes */
};

/* One of both: `run` (a process) or `http` (a service). Lists end with NULL. */
struct roster_runner {
    const char *name;
    char **run, **score; /* arguments; "{input.a.b}" is replaced by a value of the task's input */
    const char *http, *cancel; /* URLs; cancel may be NULL */
    char **pass_env;           /* names of variables that are passed on */
    char **env;                /* "NAME=value" */
    int64_t slots;
    double start_rate;  /* starts a second; 0: no limit */
    int64_t timeout_ms; /* time limit of a run */
    int64_t score_timeout_ms;
    int64_t grace_ms; /* between TERM and KILL */
};

struct roster {
    struct arena arena; /* holds all */
    struct roster_runner *at;
    size_t n;
};

/* Reads the file's text. -1 after appending a line for each mistake: "PATH:LINE: what". */
int roster_read(struct str text, const char *path, struct roster *ret, struct buf *mistakes);

/* Reads the runner file at the path. */
int roster_load(const char *path, struct roster *ret, struct buf *mistakes);
void roster_done(struct roster *p);

/* Finds a runner by its name; NULL if there is no such runner. */
const struct roster_runner *roster_find(const struct roster *p, struct str name);

/* The arguments for one task, NULL at the end, in the arena. -1 with ERR_INVALID when the input
 * lacks a value that they name, or holds one that no argument can be. */
int roster_arguments(struct arena *a, char *const *words, const struct json *input, char ***ret,
                     struct err *e);

#endif
