/*
 * struct roster: the parsed runner file: how each runner's attempts are run here. A trainer names a
 * runner; only this file contains the programs that are executed. All mistakes of a file are
 * reported at once.
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
    ROSTER_FILE_MAX = 1 << 20 /* most bytes of a file */
};

/* One runner: either `run` (a process) or `http` (a service) is set. Lists end with NULL. */
struct roster_runner {
    const char *name;
    char **run, **score; /* arguments; "{input.a.b}" is replaced by a value of the task's input */
    const char *http, *cancel; /* URLs; cancel may be NULL */
    char **pass_env;           /* names of variables that a run gets from the executor */
    char **env;                /* variables "NAME=value" of a run */
    int64_t slots;
    double start_rate;  /* most starts per second; 0: no limit */
    int64_t timeout_ms; /* time limit of a run */
    int64_t score_timeout_ms;
    int64_t grace_ms; /* time between TERM and KILL */
};

struct roster {
    struct arena arena; /* owns all strings */
    struct roster_runner *at;
    size_t n;
};

/* Reads the file's text. Returns -1 after appending a line for each mistake: "PATH:LINE:
 * mistake". */
int roster_read(struct str text, const char *path, struct roster *ret, struct buf *mistakes);

/* Reads the runner file at the path. */
int roster_load(const char *path, struct roster *ret, struct buf *mistakes);
void roster_done(struct roster *p);

/* Finds a runner by its name; NULL if there is no such runner. */
const struct roster_runner *roster_find(const struct roster *p, struct str name);

/* Makes the arguments for one task, with NULL at the end, in the arena. Returns -1 with ERR_INVALID
 * if the input lacks a value that they name, or has one that cannot be an argument. */
int roster_arguments(struct arena *a, char *const *words, const struct json *input, char ***ret,
                     struct err *e);

#endif
