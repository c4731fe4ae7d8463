/*
 * The supervisor: parent of all processes of a gateway. It opens the sockets, loads the model,
 * forks routers and workers, replaces those that die, and ends them all in order. It serves no
 * request and holds no session. Its signals:
 *   - SIGTERM, SIGINT: drain: routers finish what runs, then workers flush, then exit 0; a second
 *     signal changes nothing
 *   - SIGQUIT: end everything now
 *   - SIGHUP: read the configuration again: number of processes, live settings
 *   - SIGUSR2: upgrade: try the new binary, then become it on the same sockets (upgrade.h)
 *   - SIGCHLD: reap
 *
 * It never daemonizes. The caller gives the bodies of the children (commands.c; tests give bodies
 * of their own).
 */
#ifndef RG_SUPERVISOR_SUPERVISOR_H
#define RG_SUPERVISOR_SUPERVISOR_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct config;
struct heritage;
struct heritage_build;
struct model;

struct supervisor_bodies {
    /* loads what all workers share, before the first fork; appends a remark for the start-up line.
     * NULL: nothing to load */
    int (*load)(const struct config *c, const struct model **ret, struct buf *remark,
                struct err *e);
    void (*unload)(const struct model *m);
    /* appends a line for each setting that a reload cannot apply. NULL: it can apply all */
    void (*check)(const struct config *c, struct buf *mistakes);
    /* the main of a child; returns its exit status */
    int (*worker)(const struct heritage *h);
    int (*router)(const struct heritage *h);
    int (*dispatcher)(const struct heritage *h); /* NULL: the gateway has no dispatcher */
    int (*keeper)(const struct heritage *h);     /* with --fleet */
    /* Fills in what the keeper publishes about the model and this build. */
    void (*describe)(const struct model *m, struct heritage_build *ret);
};

/* Runs a gateway until it is stopped. Returns the exit status: 0 after a drain, 1 if it could not
 * start or if children died too often. The config remains the caller's. */
int supervisor_serve(struct config *c, const struct supervisor_bodies *bodies);

#endif
