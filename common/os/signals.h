/*
 * struct signals: a set of signals as loop events, through a signalfd. The signals stay blocked for
 * the process from then on; call it before any thread starts. Several equal signals may arrive as
 * one, so a SIGCHLD handler must call waitpid in a loop. Embed by value.
 */
#ifndef RG_OS_SIGNALS_H
#define RG_OS_SIGNALS_H

#include <signal.h>

#include "common/base/err.h"
#include "common/os/loop.h"

struct signals;

/* Handles a signal. `sender` is the process that sent it, 0 for the kernel. */
typedef void (*signals_fn)(struct signals *s, int signo, int sender);

struct signals {
    struct loop_io io;
    struct loop *loop;
    signals_fn fn;
    sigset_t set;
};

/* Blocks the signals of the 0-terminated list and reports them to fn. Returns -1 with ERR_IO. */
RG_MUSTCHECK int signals_init(struct signals *s, struct loop *l, const int *list, signals_fn fn,
                              struct err *e);

/* Removes the signals from the loop and closes the descriptor. The signals stay blocked: only
 * processes that end call this, and a signal that comes then must not kill the process before it
 * has ended in order. Accepts zeroed structs. */
void signals_done(struct signals *s);

#endif
