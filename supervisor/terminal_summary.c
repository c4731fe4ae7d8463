/* The five lines that a person needs at a terminal. Workers probe their engines after they have
 * reported. So the lines wait a moment for an engine that answers: "not reached" must not be
 * printed too early. */
#include <stdio.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/proc/config.h"
#include "supervisor/local_address.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

enum { ENGINE_WAIT_MS = 3000 };

void terminal_summary_plan(struct supervisor *s)
{
    if (s->bodies->worker && !s->upgrade.is_trial && s->upgrade.previous.n == 0 &&
        isatty(STDOUT_FILENO))
        s->summary_until_ms = (int64_t)clock_ms() + ENGINE_WAIT_MS;
}

/* Appends the configured engines, and whether a worker reaches one. */
static void add_engine(const struct supervisor *s, struct buf *out)
{
    const struct config *c = s->config;

    if (c->engine_source) {
        buf_printf(out, "from %s", c->engine_source);
    } else if (c->engine.n == 0) {
        buf_puts(out, "builtin:echo repeats the user's last message; set --engine for a real one");
        return;
    } else {
        for (size_t i = 0; i < c->engine.n; i++)
            buf_printf(out, "%s%s", i ? ", " : "", c->engine.at[i]);
    }
    if (board_engine_answers(s->board))
        buf_puts(out, ": reached");
    else if (c->config_file)
        buf_printf(out, ": NOT reached, calls wait for it; `rollgate doctor --config %s` says why",
                   c->config_file);
    else
        buf_puts(out, ": NOT reached, calls wait for it; `rollgate doctor` with the same settings "
                      "says why");
}

/* Writes all five lines in one call, so that log lines of other processes do not come between
 * them. */
static void print_summary(const struct supervisor *s)
{
    const struct config *c = s->config;
    const char *scheme = c->listen_tls ? "https" : "http";
    struct buf out = {0};

    buf_printf(&out, "address  %s://%s", scheme, s->listeners.address);
    if (c->front != FRONT_NONE)
        buf_printf(&out, ", and https://%s%s", c->front_listen[0] == ':' ? "0.0.0.0" : "",
                   c->front_listen);
    buf_puts(&out, "\nviewer   ");
    if (c->ui) {
        buf_printf(&out, "%s://", scheme);
        local_address_add(s->listeners.address, &out);
        buf_puts(&out, "/ui");
    } else {
        buf_puts(&out, "off (--ui off)");
    }
    buf_printf(&out, "\nkeys     %s\n",
               c->admin_key_file
                   ? "on: every request needs a key; the trainer's are in --admin-key-file"
                   : "off: every program that reaches the port is the operator");
    buf_printf(&out, "state    %s%s\nengine   ", c->state_dir,
               c->durability == DURABILITY_NONE ? ": nothing survives a restart (--durability none)"
                                                : ": sessions survive restarts here");
    add_engine(s, &out);
    buf_add_c(&out, '\n');
    (void)fwrite(out.p, 1, out.len, stdout);
    (void)fflush(stdout);
    buf_done(&out);
}

void terminal_summary_advance(struct supervisor *s)
{
    if (s->summary_until_ms == 0 || s->phase != PHASE_SERVING)
        return;
    if (!board_engine_answers(s->board) && (int64_t)clock_ms() < s->summary_until_ms)
        return;
    s->summary_until_ms = 0;
    print_summary(s);
}
