#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "runner/execution.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* --- folder and input --- */

static int write_file(const char *path, struct str text, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = 0;

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot make %s", path);
    while (text.len > 0 && rc == 0) {
        ssize_t n = write(fd, text.p, text.len);

        if (n < 0 && errno != EINTR)
            rc = err_sys(e, ERR_IO, "cannot write %s", path);
        text = str_sub(text, n > 0 ? (size_t)n : 0, text.len);
    }
    if (close(fd) && rc == 0)
        rc = err_sys(e, ERR_IO, "cannot write %s", path);
    return rc;
}

int surroundings_make(struct execution *a, struct err *e)
{
    struct buf input = {0};
    int rc;

    char *folder =
        arena_cstr(&a->arena, arena_printf(&a->arena, "%s/%s", a->x->options->work, a->id));

    if (mkdir(folder, 0700))
        return err_sys(e, ERR_IO, "cannot make %s", folder);
    a->folder = folder; /* ours: to be removed */
    a->input_path = arena_cstr(&a->arena, arena_printf(&a->arena, "%s.json", folder));
    json_write(&input, json_get(a->claim, "input"));
    if (!json_get(a->claim, "input"))
        buf_puts(&input, "null");
    rc = write_file(a->input_path, buf_str(&input), e);
    buf_done(&input);
    return rc;
}

/* rm -rf of one folder. */
struct cleaning {
    struct executor *x;
    char *folder;
};

static void on_output(void *ctx, bool is_error, struct str bytes)
{
    const struct cleaning *c = ctx;

    (void)is_error;
    log_warn(NULL, "a working folder cannot be removed", LOG_T("folder", c->folder),
             LOG_S("reason", str_sub(bytes, 0, 300)));
}

static void on_removed(void *ctx, const struct job_end *end)
{
    struct cleaning *c = ctx;
    struct executor *x = c->x;

    (void)end;
    free(c->folder);
    free(c);
    x->busy--;
    executor_slot_free(x);
}

static void remove_tree(struct executor *x, char *folder)
{
    static const struct job_events events = {on_output, on_removed};
    static char path[] = "PATH=" DEFAULT_PATH;
    char *argv[] = {(char[]){"rm"}, (char[]){"-rf"}, (char[]){"--"}, folder, NULL};
    char *envp[] = {path, NULL};
    struct job_spec spec = {.argv = argv, .envp = envp, .folder = "/", .grace_ms = 0};
    struct cleaning *c = mem_zalloc(sizeof(*c));
    struct job *job;
    struct err e;

    *c = (struct cleaning){x, mem_strdup(folder)};
    x->busy++;
    if (job_start(x->loop, &spec, &events, c, &job, &e) == 0)
        return;
    log_warn(NULL, "a working folder cannot be removed", LOG_T("folder", folder),
             LOG_T("reason", e.text));
    x->busy--;
    free(c->folder);
    free(c);
}

void surroundings_remove(struct execution *a)
{
    if (!a->folder)
        return;
    (void)unlink(a->input_path);
    if (rmdir(a->folder) && errno != ENOENT)
        remove_tree(a->x, a->folder);
    a->folder = NULL;
}

/* --- variables --- */

struct variables {
    struct execution *a;
    VEC(char *) at;
};

static void set(struct variables *v, const char *name, const char *value)
{
    *vec_push(&v->at) = arena_cstr(&v->a->arena, arena_printf(&v->a->arena, "%s=%s", name, value));
}

static void set_scorers(struct variables *v)
{
    struct execution *a = v->a;
    int status = a->signo ? 128 + a->signo : a->exit_status;

    set(v, "ROLLGATE_SESSION_URL",
        arena_printf(&a->arena, "%s/sessions/%s", a->x->options->gateway, a->session).p);
    set(v, "ROLLGATE_RUNNER_KEY", a->runner_key);
    set(v, "ROLLGATE_RUN_EXIT",
        a->outcome == EXECUTION_TIMEOUT ? "timeout" : arena_printf(&a->arena, "%d", status).p);
}

char **surroundings_variables(struct execution *a, bool scorer)
{
    const struct roster_runner *p = a->roster;
    struct variables v = {.a = a};
    const char *path = getenv("PATH");
    const char *url =
        arena_printf(&a->arena, "%s/sessions/%s", a->x->options->gateway, a->session).p;
    char **out;

    set(&v, "PATH", path ? path : DEFAULT_PATH);
    for (char **name = p->pass_env; name && *name; name++) {
        const char *value = getenv(*name);

        if (value)
            set(&v, *name, value);
    }
    for (char **line = p->env; line && *line; line++)
        *vec_push(&v.at) = *line;
    set(&v, "OPENAI_BASE_URL", arena_printf(&a->arena, "%s/v1", url).p);
    set(&v, "OPENAI_API_KEY", a->agent_key);
    set(&v, "ANTHROPIC_BASE_URL", url);
    set(&v, "ANTHROPIC_API_KEY", a->agent_key);
    set(&v, "ROLLGATE_INPUT", a->input_path);
    set(&v, "ROLLGATE_ATTEMPT", a->id);
    set(&v, "ROLLGATE_DEADLINE", arena_printf(&a->arena, "%.3f", a->deadline_s).p);
    if (scorer)
        set_scorers(&v);
    out = arena_calloc(&a->arena, v.at.n + 1, sizeof(*out));
    memcpy(out, v.at.at, v.at.n * sizeof(*out));
    vec_done(&v.at);
    return out;
}
