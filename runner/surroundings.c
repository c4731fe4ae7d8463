/*
 * The surroundings of a run: its working folder, the file with its input, and its environment. The
 * environment is not inherited. It has PATH, then variables that the runner passes on (pass_env),
 * sets (env), and those that the gateway's clients read. A later variable replaces an earlier one
 * with the same name. The runner file must not set or pass on the variables of the clients
 * (roster.c). The scorer gets three more: the session's URL, the key for it, and how the run ended.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/vec.h"
#include "runner/execution.h"

int surroundings_make(struct execution *a, struct err *e)
{
    struct buf input = {0};
    int rc;

    json_write(&input, json_get(a->claim, "input"));
    if (!json_get(a->claim, "input"))
        buf_puts(&input, "null");
    rc = workplace_make(&a->x->places, a->id, buf_str(&input), &a->place, e);
    buf_done(&input);
    return rc;
}

/* --- variables --- */

struct variables {
    struct execution *a;
    VEC(char *) at;
};

/* Sets a line NAME=VALUE and removes an earlier one of the same name: programs disagree on which of
 * two counts. */
static void set_line(struct variables *v, char *line)
{
    size_t n = strcspn(line, "=") + 1;

    for (size_t i = 0; i < v->at.n; i++) {
        if (strncmp(v->at.at[i], line, n) == 0) {
            v->at.at[i] = line;
            return;
        }
    }
    *vec_push(&v->at) = line;
}

static void set_variable(struct variables *v, const char *name, const char *value)
{
    set_line(v, arena_cstr(&v->a->arena, arena_printf(&v->a->arena, "%s=%s", name, value)));
}

static void set_scorers(struct variables *v)
{
    struct execution *a = v->a;
    int status = a->signo ? 128 + a->signo : a->exit_status;

    set_variable(v, "ROLLGATE_SESSION_URL",
                 arena_printf(&a->arena, "%s/sessions/%s", a->x->options->gateway, a->session).p);
    set_variable(v, "ROLLGATE_RUNNER_KEY", a->runner_key);
    set_variable(v, "ROLLGATE_RUN_EXIT",
                 a->outcome == EXECUTION_TIMEOUT ? "timeout"
                                                 : arena_printf(&a->arena, "%d", status).p);
}

char **surroundings_variables(struct execution *a, bool scorer)
{
    const struct roster_runner *p = a->roster;
    struct variables v = {.a = a};
    const char *path = getenv("PATH");
    const char *url =
        arena_printf(&a->arena, "%s/sessions/%s", a->x->options->gateway, a->session).p;
    char **out;

    set_variable(&v, "PATH", path ? path : SURROUNDINGS_PATH);
    for (char **name = p->pass_env; name && *name; name++) {
        const char *value = getenv(*name);

        if (value)
            set_variable(&v, *name, value);
    }
    for (char **line = p->env; line && *line; line++)
        set_line(&v, *line);
    set_variable(&v, "OPENAI_BASE_URL", arena_printf(&a->arena, "%s/v1", url).p);
    set_variable(&v, "OPENAI_API_KEY", a->agent_key);
    set_variable(&v, "ANTHROPIC_BASE_URL", url);
    set_variable(&v, "ANTHROPIC_API_KEY", a->agent_key);
    set_variable(&v, "ROLLGATE_INPUT", a->place.input);
    set_variable(&v, "ROLLGATE_ATTEMPT", a->id);
    set_variable(&v, "ROLLGATE_DEADLINE", arena_printf(&a->arena, "%.3f", a->deadline_s).p);
    if (scorer)
        set_scorers(&v);
    out = arena_calloc(&a->arena, v.at.n + 1, sizeof(*out));
    memcpy(out, v.at.at, v.at.n * sizeof(*out));
    vec_done(&v.at);
    return out;
}
