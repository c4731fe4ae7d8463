/* Implements `rollgate export`. The journal is replayed into a session store (replayed.h). Then
 * each session is exported with the same code as over HTTP, so the bytes are the same. */

#include "worker/commands/offline_commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "worker/commands/html_page.h"
#include "worker/commands/id_form.h"
#include "worker/commands/replayed.h"
#include "worker/export/build/export.h"
#include "worker/media/media_store.h"

enum { FLUSH_BYTES = 1 << 20 };

struct export_request {
    const char *dir, *session, *out, *format;
    const char *html; /* id of the session to write as a page */
    const char *to;   /* "jsonl": one trajectory per line; or NULL */
    bool chosen;      /* an OPTION=VALUE was given */
    struct model_options model;
    struct export_options options;
};

/* A file to which an export is written. */
struct file_out {
    struct export_out out;
    struct buf bytes;
    bool as_lines; /* the whole export is turned into lines at its end */
    FILE *to;
};

static int write_bytes(struct file_out *f, struct err *e)
{
    size_t n = f->bytes.len;

    buf_clear(&f->bytes);
    return n > 0 && fwrite(f->bytes.p, 1, n, f->to) != n ? err_sys(e, ERR_IO, "cannot write") : 0;
}

static int flow_file(struct export_out *o, struct err *e)
{
    struct file_out *f = CONTAINER_OF(o, struct file_out, out);

    return f->bytes.len >= FLUSH_BYTES && !f->as_lines ? write_bytes(f, e) : 0;
}

/* Replaces a native export with its trajectories as lines. Each line has the session's id, then the
 * trajectory's members. */
static int make_lines(struct buf *bytes, struct err *e)
{
    struct arena a = {0};
    struct buf lines = {0};
    const struct json *v = NULL, *t;
    int rc = json_parse(&a, buf_str(bytes), &v, e);

    for (size_t i = 0; rc == 0 && (t = json_at(json_get(v, "trajectories"), i)); i++) {
        struct json_out o = json_out_to(&lines);

        json_out_obj(&o);
        json_out_member_str(&o, "session_id", json_string(json_get(v, "session_id")));
        for (uint32_t k = 0; k < t->n; k++)
            json_out_member_of(&o, json_string(&t->members[k].key), &t->members[k].value);
        json_out_end_obj(&o);
        buf_add_c(&lines, '\n');
    }
    arena_done(&a);
    buf_done(bytes);
    *bytes = lines;
    return rc;
}

static int write_export(struct export *x, struct file_out *f, struct err *e)
{
    if (export_write(x, &f->out, e) || (f->as_lines && make_lines(&f->bytes, e)))
        return -1;
    return write_bytes(f, e);
}

/* Exports one session. Warns if it has no reward. */
static int export_session(const struct export_request *q, struct replayed *r,
                          struct model_scratch *scratch, struct session *s, FILE *to, struct err *e)
{
    struct file_out f = {
        .out = {.bytes = &f.bytes, .flow = flow_file}, .as_lines = q->to != NULL, .to = to};
    struct export *x = NULL;
    int rc = export_new(s, r->model, scratch, &q->options, &x, e);

    if (rc == 0 && export_lacks_reward(x))
        fprintf(stderr, "%.*s: warning: no reward is known\n", (int)session_id(s).len,
                session_id(s).p);
    if (rc == 0)
        rc = write_export(x, &f, e);
    export_free(x);
    buf_done(&f.bytes);
    return rc;
}

/* Writes OUT/ID.FORMAT. */
static int export_to_file(const struct export_request *q, struct replayed *r,
                          struct model_scratch *scratch, struct session *s, struct err *e)
{
    char path[4096];
    struct str id = session_id(s);
    FILE *f;
    int rc;

    (void)snprintf(path, sizeof(path), "%s/%.*s.%s", q->out, (int)id.len, id.p,
                   q->to ? q->to : q->format);
    f = fopen(path, "wbe");
    if (!f)
        return err_sys(e, ERR_IO, "cannot make %s", path);
    rc = export_session(q, r, scratch, s, f, e);
    if (fclose(f) && rc == 0)
        rc = err_sys(e, ERR_IO, "cannot write %s", path);
    return rc;
}

/* Exports one session and reports an error. Returns 1 if it failed, else 0; other sessions are
 * still exported. */
static int export_or_report(const struct export_request *q, struct replayed *r,
                            struct model_scratch *scratch, struct session *s)
{
    struct err e = {0};
    struct str id = session_id(s);
    int rc;

    if (session_foreign(s))
        fprintf(stderr,
                "%.*s: another tokenizer than --model's made it: exported without what needs one "
                "(text, drift audit)\n",
                (int)id.len, id.p);
    if (q->html) {
        rc = html_page_write(r, scratch, s, stdout, &e);
    } else if (q->out) {
        rc = export_to_file(q, r, scratch, s, &e);
    } else {
        rc = export_session(q, r, scratch, s, stdout, &e);
        if (!q->to && strcmp(q->format, "json") == 0)
            (void)fputc('\n', stdout);
    }
    if (rc)
        fprintf(stderr, "%.*s: %s\n", (int)id.len, id.p, e.text);
    return rc ? 1 : 0;
}

/* Reports whether the session is an evaluation that lines leave out: they are training data. Sinks
 * leave evaluations out, too. */
static bool leaves_out_evaluation(const struct export_request *q, const struct session *s)
{
    struct str id = session_id(s);

    if (!q->to || !session_evaluates(s))
        return false;
    fprintf(stderr, "%.*s: an evaluation: left out (--session %.*s exports it)\n", (int)id.len,
            id.p, (int)id.len, id.p);
    return true;
}

/* Exports all sessions. Returns 0, or 1 if a session failed. */
static int export_all(const struct export_request *q, struct replayed *r,
                      struct model_scratch *scratch)
{
    int status = 0;

    for (struct session *s = session_next(r->store, NULL); s; s = session_next(r->store, s)) {
        if (!session_copying(s) && !leaves_out_evaluation(q, s))
            status |= export_or_report(q, r, scratch, s);
    }
    return status;
}

/* Makes the parent folders of the path. */
static void make_parents(const char *path)
{
    char *part = mem_strdup(path);

    for (char *at = part + 1; *part && (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(part, 0777); /* if this fails, the last mkdir reports it */
    }
    free(part);
}

/* Makes the folder for --out if it does not exist. Prints an error and returns -1 if it cannot be
 * used. */
static int make_folder(const char *path)
{
    struct stat s;

    make_parents(path);
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode) && access(path, W_OK) == 0)
        return 0;
    fprintf(stderr, "rollgate export: cannot write into --out %s: %s\n", path,
            errno == EEXIST ? "not a folder" : strerror(errno));
    return -1;
}

/* Opens the store of images, which is in the state folder next to the workers' journals. */
static void open_media(struct export_request *q, struct media_store **ret)
{
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/..", q->dir);
    *ret = media_store_new(&(struct media_options){.state_dir = path});
    q->options.store = *ret;
}

/* Replays the journal and exports the requested sessions. Returns the exit status. */
static int run_export(struct export_request *q)
{
    struct replayed r = {0};
    struct media_store *store;
    struct model_scratch *scratch;
    struct err e = {0};
    struct session *s;
    bool ended = false;
    int status = 1;

    if (q->out && make_folder(q->out))
        return 1;
    if (replayed_load(q->dir, &q->model, &r, &e)) {
        fprintf(stderr, "%s: %s\n", q->dir, e.text);
        return 1;
    }
    if (r.skipped > 0)
        fprintf(stderr, "%s: %llu records do not fit (damage): run `rollgate journal check`\n",
                q->dir, (unsigned long long)r.skipped);
    scratch = model_scratch_new(r.model);
    open_media(q, &store);
    if (!q->session) {
        status = export_all(q, &r, scratch);
    } else {
        s = session_find_any(r.store, str_cstr(q->session), &ended);
        if (s && !session_copying(s))
            status = export_or_report(q, &r, scratch, s);
        else
            fprintf(stderr, "%s: no such session in %s\n", q->session, q->dir);
    }
    media_store_free(store);
    model_scratch_free(scratch);
    replayed_done(&r);
    return status;
}

/* Reads one argument and its value. Returns the number of words that were read, or -1. */
static int read_argument(struct export_request *q, char **argv, int left, struct err *e)
{
    static const char *const names[] = {"--session", "--model", "--format",
                                        "--out",     "--html",  "--to"};
    const char **places[] = {&q->session, &q->model.dir, &q->format, &q->out, &q->html, &q->to};
    const char *eq = strchr(argv[0], '=');

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(argv[0], names[i]) != 0)
            continue;
        if (left < 2)
            return err_set(e, ERR_CONFIG, "%s needs a value", names[i]);
        *places[i] = argv[1];
        return 2;
    }
    if (argv[0][0] == '-')
        return err_set(e, ERR_CONFIG, "unknown flag %s", argv[0]);
    if (!eq && q->dir)
        return err_set(e, ERR_CONFIG, "one DIR is exported at a time, not %s and %s", q->dir,
                       argv[0]);
    if (!eq) {
        q->dir = argv[0];
        return 1;
    }
    q->chosen = true;
    return export_option(&q->options, str_of(argv[0], (size_t)(eq - argv[0])), str_cstr(eq + 1), e)
               ? -1
               : 1;
}

/* Writes the path of the journal folder of the worker that the session's id names, by the current
 * settings. */
static int locate_session(const char *id, char *path, size_t size, struct err *e)
{
    char *nothing[] = {(char[]){"export"}, NULL};
    struct buf mistakes = {0};
    struct config *c;
    uint32_t index;
    int rc = 0;

    if (ids_parse(str_cstr(id), &index))
        return err_set(e, ERR_CONFIG, "--html %s is no session's id: name DIR before it", id);
    c = config_load(1, nothing, &mistakes);
    if (!c)
        rc = err_set(e, ERR_CONFIG, "no state folder is known (%.*s): name DIR", (int)mistakes.len,
                     mistakes.p);
    else
        (void)snprintf(path, size, "%s/worker-%u", c->state_dir, index);
    config_free(c);
    buf_done(&mistakes);
    return rc;
}

/* Checks --html. A page contains one whole session, so options that choose or place something are
 * rejected. Without DIR, q->dir becomes `path`, which the caller keeps. */
static int read_page_flag(struct export_request *q, char *path, size_t size, struct err *e)
{
    if (q->out || q->session || q->format || q->to || q->chosen)
        return err_set(e, ERR_CONFIG,
                       "--html writes one session whole to standard output: it takes no --session, "
                       "--out, --format, --to or OPTION=VALUE");
    q->session = q->html;
    if (q->dir)
        return 0;
    q->dir = path;
    return locate_session(q->html, path, size, e);
}

/* Checks --to. JSON lines are made from the format json. */
static int check_lines(const struct export_request *q, struct err *e)
{
    if (q->to && strcmp(q->to, "jsonl") != 0)
        return err_set(e, ERR_CONFIG, "--to is jsonl, not %s; other formats: --format", q->to);
    if (q->to && q->format)
        return err_set(e, ERR_CONFIG, "--to jsonl takes no --format: its lines are in format json");
    return 0;
}

/* Returns 0 if all is done, 1 if a session failed, 2 for usage. */
int export_command(int argc, char **argv)
{
    struct export_request q = {0};
    struct err e = {0};
    char path[4096];
    int n = 1;

    id_form_read();
    export_options_init(&q.options);
    for (int i = 1; i < argc && n > 0; i += n)
        n = read_argument(&q, argv + i, argc - i, &e);
    if (n > 0 && q.html && read_page_flag(&q, path, sizeof(path), &e))
        n = -1;
    if (n > 0 && check_lines(&q, &e))
        n = -1;
    if (!q.format)
        q.format = "json";
    if (n > 0 && export_option(&q.options, STR("format"), str_cstr(q.format), &e))
        n = -1;
    if (n < 0 || !q.dir) {
        fprintf(
            stderr,
            "%s%susage: rollgate export DIR [--session ID] [--model DIR] [--format F | --to jsonl] "
            "[--out DIR] [OPTION=VALUE ...]\n"
            "       rollgate export [DIR] --html ID [--model DIR] > page.html\n",
            e.text, e.text[0] ? "\n" : "");
        return 2;
    }
    return run_export(&q);
}
