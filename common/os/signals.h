/*
 * struct signals: a set of signals as loop events, through a signalfd. The signals are blocked for
 * the process (made before any thread) from then on. Several equal signals
 * may arrive as one: a SIGCHLD handler loops over waitpid. Embed by value.
 */
#ifndef RG_OS_SIGNALS_H
#define RG_OS_SIGNALS_H

#include <signal.h>

#include "common/base/err.h"
#include "common/os/loop.h"

struct signals;

/* `sender` is the process that sent it, 0 for the kernel. */
typedef void (*signals_fn)(struct signals *s, int signo, int sender);

struct signals {
    struct loop_io io;
    struct loop *loop;
    signals_fn fn;
    sigset_t set;
};

/* Blocks the signals of the 0-terminated list and reports them to fn. -1 with ERR_IO. */
RG_MUSTCHECK int signals_init(struct signals *s, struct loop *l, const int *list, signals_fn fn,
                              struct err *e);

/* Leaves the loop and closes the descriptor. The signals stay blocked: they are taken by processes
 * that end afterwards, and one that comes then must not kill what is ending in order. Zeroed
 * structs are accepted. */
void signals_done(struct signals *s);

#endif
