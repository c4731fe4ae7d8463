/* `rollgate group`: submit, list, show, wait for and cancel groups of rollouts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "common/proc/command_line.h"
#include "common/proc/gateway_client.h"
#include "runner/runner.h"

enum { INPUT_MAX = 64 << 20, WAITS_COMPARED = 40, EXIT_CANCELLED = 4 };

struct group_call {
    struct gateway_client *client;
    bool json; /* prints answers as they came instead of tables */
    int status;
    struct buf body;
};

/* Sends one request and reads its answer. Returns 0 on a 2xx, otherwise 1 after printing the error.
 */
static int call_gateway(struct group_call *g, const char *method, const char *path, struct str sent)
{
    struct arena a = {0};
    struct str why;

    g->status = gateway_client_call(g->client, method, path, sent, &g->body);
    if (g->status >= 200 && g->status < 300)
        return 0;
    why = buf_str(&g->body);
    if (g->status)
        why = gateway_client_reason(&a, why);
    fprintf(stderr, "rollgate group: %.*s\n", (int)why.len, why.p);
    arena_done(&a);
    return 1;
}

/* --- showing --- */

static int get_integer(const struct json *v, const char *name)
{
    return (int)json_number_of(v, name);
}

static struct str get_member_text(const struct json *v, const char *name)
{
    struct str s = json_text(json_get(v, name));

    return s.p ? s : STR("-");
}

static void row_of(const struct json *g)
{
    struct str id = get_member_text(g, "id"), state = get_member_text(g, "state"),
               queue = get_member_text(g, "queue"), runner = get_member_text(g, "runner");

    printf("%-36.*s %-10.*s %-12.*s %-16.*s %4d of %d\n", (int)id.len, id.p, (int)state.len,
           state.p, (int)queue.len, queue.p, (int)runner.len, runner.p, get_integer(g, "succeeded"),
           get_integer(g, "n"));
}

static void members_of(const struct json *g)
{
    const struct json *members = json_get(g, "members");

    printf("\n%7s %-10s %-8s %8s %10s %8s  %s\n", "rollout", "state", "outcome", "attempts",
           "reward", "trained", "reason");
    for (uint32_t i = 0; json_is(members, JSON_ARRAY) && i < members->n; i++) {
        const struct json *m = json_at(members, i);
        struct str state = get_member_text(m, "state"), outcome = get_member_text(m, "outcome"),
                   reward = get_member_text(m, "reward"), reason = get_member_text(m, "reason");

        printf("%7d %-10.*s %-8.*s %8d %10.*s %8d  %.*s\n", get_integer(m, "rollout"),
               (int)state.len, state.p, (int)outcome.len, outcome.p, get_integer(m, "attempts"),
               (int)reward.len, reward.p, get_integer(m, "trained_tokens"), (int)reason.len,
               reason.p);
    }
}

/* Returns the last line of a text, without its line feed. */
static struct str last_line(struct str s)
{
    size_t from;

    s = str_trim(s);
    for (from = s.len; from > 0 && s.p[from - 1] != '\n'; from--)
        ;
    return str_sub(s, from, SIZE_MAX);
}

/* Prints, below the table, the path of each rollout's log and its last line. */
static void print_logs(const struct json *g)
{
    const struct json *members = json_get(g, "members");

    for (uint32_t i = 0; json_is(members, JSON_ARRAY) && i < members->n; i++) {
        const struct json *m = json_at(members, i);
        struct str log = json_string(json_get(m, "log"));
        struct str line = last_line(json_string(json_get(m, "log_tail")));

        if (log.len > 0 || line.len > 0)
            printf("\nrollout %d log: %.*s\n    %.*s\n", get_integer(m, "rollout"), (int)log.len,
                   log.p ? log.p : "", (int)line.len, line.p ? line.p : "");
    }
}

/* Prints the answer as it came, or as a table. */
static int show_answer(struct group_call *g)
{
    struct arena a = {0};
    const struct json *v = NULL, *list;
    struct err e;

    if (g->json || json_parse(&a, buf_str(&g->body), &v, &e)) {
        printf("%.*s\n", (int)g->body.len, g->body.p ? g->body.p : "");
        return 0;
    }
    list = json_get(v, "groups");
    printf("%-36s %-10s %-12s %-16s %s\n", "group", "state", "queue", "runner", "succeeded");
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++)
        row_of(json_at(list, i));
    if (!list) {
        row_of(v);
        members_of(v);
        print_logs(v);
        if (json_string(json_get(v, "waits")).p)
            printf("\nwaits: %s\n", arena_cstr(&a, json_string(json_get(v, "waits"))));
    }
    if (json_string(json_get(v, "warning")).p)
        fprintf(stderr, "rollgate group: warning: %s\n",
                arena_cstr(&a, json_string(json_get(v, "warning"))));
    for (uint32_t i = 0; json_at(json_get(v, "unreachable"), i); i++)
        fprintf(stderr, "rollgate group: warning: the groups of peer %s are not listed\n",
                arena_cstr(&a, json_string(json_at(json_get(v, "unreachable"), i))));
    if (json_string(json_get(v, "next_cursor")).p)
        printf("more: rollgate group list cursor=%s\n",
               arena_cstr(&a, json_string(json_get(v, "next_cursor"))));
    arena_done(&a);
    return 0;
}

/* --- the verbs --- */

/* Prints to standard error why the group, which was just submitted, will wait. */
static void warn_of(struct group_call *g, const char *id)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct buf path = {0};
    struct err e;

    buf_printf(&path, "/groups/%s", id);
    buf_add_c(&path, '\0');
    if (call_gateway(g, "GET", path.p, (struct str){0}) == 0 &&
        json_parse(&a, buf_str(&g->body), &v, &e) == 0 && json_string(json_get(v, "waits")).p)
        fprintf(stderr, "rollgate group: warning: %s waits: %s\n", id,
                arena_cstr(&a, json_string(json_get(v, "waits"))));
    buf_done(&path);
    arena_done(&a);
}

static int submit_groups(struct group_call *g, const char *file)
{
    bool from_stdin = !file || strcmp(file, "-") == 0;
    struct buf body = {0};
    struct arena a = {0};
    const struct json *v = NULL, *list = NULL;
    struct err e;
    int rc;

    if (from_stdin ? file_read_rest(STDIN_FILENO, "standard input", INPUT_MAX, &body, &e)
                   : file_read(file, INPUT_MAX, &body, &e)) {
        buf_done(&body);
        fprintf(stderr, "rollgate group: %s\n", e.text);
        return 1;
    }
    rc = call_gateway(g, "POST", "/groups", buf_str(&body));
    buf_done(&body);
    if (rc == 0 && !g->json && json_parse(&a, buf_str(&g->body), &v, &e) == 0) {
        list = json_get(v, "groups");
        for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++)
            printf("%s\n", arena_cstr(&a, json_string(json_get(json_at(list, i), "id"))));
    } else if (rc == 0) {
        rc = show_answer(g);
    }
    if (rc == 0 && json_at(list, 0))
        warn_of(g, arena_cstr(&a, json_string(json_get(json_at(list, 0), "id"))));
    arena_done(&a);
    return rc;
}

/* Shows the progress on one line of a terminal: succeeded rollouts, the rate, the remaining
 * time. */
static bool show_progress(struct group_call *g, uint64_t began_ms, int *first)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e;
    double s = (double)(clock_ms() - began_ms) / 1000;
    struct str state;
    int done, n;
    bool settled = true;

    if (json_parse(&a, buf_str(&g->body), &v, &e) == 0) {
        state = get_member_text(v, "state");
        settled = !str_eq_c(state, "waiting") && !str_eq_c(state, "running");
        done = get_integer(v, "succeeded");
        n = get_integer(v, "n");
        if (*first < 0)
            *first = done;
        if (isatty(STDERR_FILENO) && !settled) {
            double rate = s > 0 ? (done - *first) / s : 0;

            fprintf(stderr, "\r%d of %d succeeded, %d running, %.2f/s", done, n,
                    get_integer(v, "running"), rate);
            if (rate > 0)
                fprintf(stderr, ", %.0f s to go   ", (n - done) / rate);
        } else if (isatty(STDERR_FILENO)) {
            fputc('\n', stderr);
        }
    }
    arena_done(&a);
    return settled;
}

/* Prints to standard error why the group waits, when that changes. Remaining seconds do not count
 * as a change. */
static void write_waits(const struct group_call *g, struct buf *said)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e;
    struct str why = {0};

    if (json_parse(&a, buf_str(&g->body), &v, &e) == 0)
        why = json_string(json_get(v, "waits"));
    if (!str_eq(str_sub(why, 0, WAITS_COMPARED), str_sub(buf_str(said), 0, WAITS_COMPARED))) {
        if (why.len > 0)
            fprintf(stderr, "%swaits: %.*s\n", isatty(STDERR_FILENO) ? "\r" : "", (int)why.len,
                    why.p);
        buf_set(said, why);
    }
    arena_done(&a);
}

/* Returns the exit status of `wait` for a settled group. */
static int exit_status(const struct group_call *g)
{
    static const struct {
        const char *state;
        int status;
    } states[] = {{"finished", 0}, {"failed", 3}, {"cancelled", EXIT_CANCELLED}, {"partial", 5}};
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e;
    int status = 1;

    if (json_parse(&a, buf_str(&g->body), &v, &e) == 0)
        for (size_t i = 0; i < ARRAY_LEN(states); i++)
            if (str_eq_c(get_member_text(v, "state"), states[i].state))
                status = states[i].status;
    arena_done(&a);
    return status;
}

static int wait_for_group(struct group_call *g, const char *id)
{
    uint64_t began_ms = clock_ms();
    struct buf said = {0};
    char path[256], long_path[320];
    bool seen = false;
    int first = -1, rc;

    (void)snprintf(path, sizeof(path), "/groups/%s", id);
    (void)snprintf(long_path, sizeof(long_path), "%s/wait?timeout_s=1", path);
    do {
        seen = g->status == 200 || g->status == 204;
        if (call_gateway(g, "GET", long_path, (struct str){0}) ||
            (g->status == 204 && call_gateway(g, "GET", path, (struct str){0}))) {
            buf_done(&said);
            if (!seen || g->status != 404)
                return 1;
            fprintf(stderr, "rollgate group: %s was cancelled meanwhile\n", id);
            return EXIT_CANCELLED; /* the group was cancelled, and removed between two requests */
        }
        write_waits(g, &said);
    } while (!show_progress(g, began_ms, &first));
    rc = exit_status(g);
    buf_done(&said);
    return show_answer(g) ? 1 : rc;
}

static bool id_is_good(const char *id)
{
    return id && *id && strlen(id) <= 128 &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.") ==
               strlen(id);
}

static int run_verb(struct group_call *g, const char *verb, const char *what)
{
    char path[1024];

    if (strcmp(verb, "submit") == 0)
        return submit_groups(g, what);
    if (strcmp(verb, "list") == 0) {
        if (what && (strlen(what) > 900 || strpbrk(what, " \r\n\t#?"))) {
            fprintf(stderr, "rollgate group: \"%s\" is no query\n", what);
            return 2;
        }
        (void)snprintf(path, sizeof(path), "/groups%s%s", what ? "?" : "", what ? what : "");
        return call_gateway(g, "GET", path, (struct str){0}) || show_answer(g);
    }
    if (!id_is_good(what)) {
        fprintf(stderr, "rollgate group: \"%s\" is no group's id\n", what);
        return 2;
    }
    if (strcmp(verb, "wait") == 0)
        return wait_for_group(g, what);
    if (strcmp(verb, "cancel") == 0) {
        (void)snprintf(path, sizeof(path), "/groups/%s/cancel", what);
        if (call_gateway(g, "POST", path, STR("{}")))
            return 1;
        printf("%.*s\n", (int)g->body.len, g->body.p);
        return 0;
    }
    (void)snprintf(path, sizeof(path), "/groups/%s", what);
    return call_gateway(g, "GET", path, (struct str){0}) || show_answer(g);
}

/* --- the command line --- */

static int print_group_usage(void)
{
    fprintf(stderr, "usage: rollgate group submit FILE | list [QUERY] | show ID | wait ID | cancel "
                    "ID [--gateway URL] [--key-file FILE] [--ca-file FILE] [--json]\n");
    return 2;
}

int group_command(int argc, char **argv)
{
    static const char *const verbs[] = {"submit", "show", "wait", "cancel", "list"};
    struct gateway_client_options o =
        gateway_client_take_options(&argc, argv, "http://127.0.0.1:8600");
    struct group_call g = {.json = command_line_take_flag(&argc, argv, "--json")};
    struct buf mistakes = {0};
    size_t verb = 0;
    int rc = 1;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            return print_group_usage();
    }
    while (argc > 1 && verb < ARRAY_LEN(verbs) && strcmp(verbs[verb], argv[1]) != 0)
        verb++;
    if (argc < 2 || argc > 3 || verb == ARRAY_LEN(verbs) ||
        (argc == 2 && strcmp(argv[1], "list") != 0))
        return print_group_usage();
    g.client = gateway_client_new(&o, &mistakes);
    if (g.client)
        rc = run_verb(&g, argv[1], argc > 2 ? argv[2] : NULL);
    else
        fprintf(stderr, "rollgate group: %.*s", (int)mistakes.len, mistakes.p);
    gateway_client_free(g.client);
    buf_done(&g.body);
    buf_done(&mistakes);
    return rc;
}
