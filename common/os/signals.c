/* Signals as events (signals.h): blocked, and read from a signalfd on the loop. So handlers are
 * ordinary callbacks and nothing is interrupted. */

#include "common/os/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

/* Handles all waiting signals. A handler may end the reading by signals_done. */
static void on_readable(struct loop_io *io, unsigned events)
{
    struct signals *s = CONTAINER_OF(io, struct signals, io);
    struct signalfd_siginfo info;

    (void)events;
    while (s->io.fd >= 0 && read(s->io.fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        s->fn(s, (int)info.ssi_signo, (int)info.ssi_pid);
}

int signals_init(struct signals *s, struct loop *l, const int *list, signals_fn fn, struct err *e)
{
    int fd;

    *s = (struct signals){.loop = l, .fn = fn};
    sigemptyset(&s->set);
    for (; *list; list++)
        sigaddset(&s->set, *list);
    if (sigprocmask(SIG_BLOCK, &s->set, NULL))
        return err_sys(e, ERR_IO, "cannot block signals");
    fd = signalfd(-1, &s->set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        return err_sys(e, ERR_IO, "no signalfd");
    if (loop_add(l, &s->io, fd, LOOP_IN, on_readable, e)) {
        close(fd);
        return -1;
    }
    return 0;
}

void signals_done(struct signals *s)
{
    if (!s->loop)
        return;
    loop_del(s->loop, &s->io);
    close(s->io.fd);
    s->io.fd = -1;
    s->loop = NULL;
}
