/* Checks the gateway from outside: its port, its engines, and one call from the session to its
 * deletion. The session is never finalized, so no sink gets it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "common/proc/gateway_client.h"
#include "supervisor/doctor.h"
#include "supervisor/last_words.h"
#include "supervisor/local_address.h"
#include "supervisor/user.h"

/* --- a gateway of its own --- */

/* struct own_gateway: a gateway that a command starts for itself, with the command's settings. It
 * has its own port and folders, one worker and one router, and neither an executor nor traces.
 *
 * Opens the listening socket here and passes it in the same way as systemd (LISTEN_FDS). So the
 * port is known before the gateway serves, and no other program can use it. */

struct own_gateway {
    pid_t pid;       /* 0: the gateway does not run */
    int log_fd;      /* memory file with its output */
    char folder[64]; /* folder that contains its state and run folders */
    char url[40];
};

enum { FIRST_GIVEN = 3, FOLDER_MAX = 40, END_MS = 15000, START_POLL_US = 20000 };

/* Opens a socket that listens on a free port of loopback. Returns -1 with errno. */
static int open_port(struct own_gateway *g)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, SOMAXCONN) ||
                    getsockname(fd, (struct sockaddr *)&a, &n))) {
        close(fd);
        return -1;
    }
    (void)snprintf(g->url, sizeof(g->url), "http://127.0.0.1:%u", ntohs(a.sin_port));
    return fd;
}

/* Moves a descriptor to a fixed number, which stays open after exec. */
static void move_descriptor(int from, int to)
{
    if (from == to)
        (void)fcntl(to, F_SETFD, 0);
    else
        (void)dup2(from, to);
}

/* Executes the gateway, in the child. */
RG_NORETURN static void become_gateway(const struct own_gateway *g, int argc, char **argv, int port,
                                       pid_t parent)
{
    static const char *const settings[] = {
        "--listen=127.0.0.1:0", "--workers=1",       "--routers=1",          "--runners=",
        "--otlp-endpoint=",     "--front=none",      "--tls-certificate=",   "--tls-key=",
        "--tls-client-ca=",     "--log-format=text", "--journal-min-free=0", "--fleet=",
        "--fleet-node=",        "--fleet-address="};
    static const char *const unset[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "JOURNAL_STREAM"};
    VEC(char *) args = {0};
    struct buf state = {0}, run = {0};
    char pid[16];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)dup2(g->log_fd, STDOUT_FILENO);
    (void)dup2(g->log_fd, STDERR_FILENO);
    move_descriptor(port, FIRST_GIVEN);
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)setenv("LISTEN_PID", pid, 1);
    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        (void)unsetenv(unset[i]);
    buf_printf(&state, "--state-dir=%s/s%c", g->folder, 0);
    buf_printf(&run, "--run-dir=%s/r%c", g->folder, 0);
    *vec_push(&args) = (char *)(uintptr_t) "rollgate";
    *vec_push(&args) = (char *)(uintptr_t) "serve";
    for (int i = 1; i < argc; i++)
        *vec_push(&args) = argv[i];
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        *vec_push(&args) = (char *)(uintptr_t)settings[i];
    *vec_push(&args) = state.p;
    *vec_push(&args) = run.p;
    *vec_push(&args) = NULL;
    (void)execv("/proc/self/exe", args.at);
    dprintf(STDERR_FILENO, "error: cannot execute it: %s\n", strerror(errno));
    _exit(127);
}

/* Makes folders for which the gateway's user has every right. */
static int make_folders(struct own_gateway *g, const struct config *c, struct err *e)
{
    static const char *const names[] = {"", "/s", "/r"};
    const char *parent = getenv("TMPDIR");
    struct buf path = {0};
    int rc = 0;

    if (!parent || strlen(parent) > FOLDER_MAX) /* paths of unix sockets are short */
        parent = "/tmp";
    (void)snprintf(g->folder, sizeof(g->folder), "%s/rollgate-XXXXXX", parent);
    if (!mkdtemp(g->folder)) {
        g->folder[0] = 0;
        return err_sys(e, ERR_IO, "cannot make a folder in %s", parent);
    }
    for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s%s%c", g->folder, names[i], 0);
        if (i > 0 && mkdir(path.p, 0700))
            rc = err_sys(e, ERR_IO, "cannot make %s", path.p);
        else
            rc = user_chown(c, path.p, e);
    }
    buf_done(&path);
    return rc;
}

/* Starts the gateway. argv[1..] are the settings that `c` was loaded from. Returns -1 if it cannot
 * start. */
static int own_gateway_start(struct own_gateway *g, const struct config *c, int argc, char **argv,
                             struct err *e)
{
    pid_t parent = getpid();
    int port;

    *g = (struct own_gateway){.log_fd = memfd_create("gateway", MFD_CLOEXEC)};
    if (make_folders(g, c, e))
        return -1;
    port = open_port(g);
    if (port < 0)
        return err_sys(e, ERR_IO, "cannot listen on loopback");
    g->pid = fork();
    if (g->pid == 0)
        become_gateway(g, argc, argv, port, parent);
    close(port);
    if (g->pid > 0)
        return 0;
    g->pid = 0;
    return err_sys(e, ERR_IO, "fork");
}

/* Returns false if the gateway has ended. Then `why` has the last line of its log about an
 * error. */
static bool own_gateway_lives(struct own_gateway *g, struct buf *why)
{
    if (g->pid && waitpid(g->pid, NULL, WNOHANG) == g->pid)
        g->pid = 0;
    if (g->pid)
        return true;
    last_words_read(g->log_fd, why);
    return false;
}

/* Ends the gateway and removes its folders. */
static void own_gateway_stop(struct own_gateway *g)
{
    uint64_t end = clock_ms() + END_MS;

    if (g->pid)
        (void)kill(g->pid, SIGTERM);
    while (g->pid && waitpid(g->pid, NULL, WNOHANG) == 0) {
        if (clock_ms() > end)
            (void)kill(g->pid, SIGKILL);
        (void)usleep(START_POLL_US);
    }
    g->pid = 0;
    if (g->log_fd >= 0)
        close(g->log_fd);
    if (g->folder[0])
        file_remove_tree(g->folder);
}

/* --- checks --- */

enum {
    POLL_US = 50000,
    /* wait for an engine: workers probe engines after they have begun to serve */
    ENGINE_WAIT_MS = 5000,
    ANSWER_SHOWN = 300 /* bytes of an unexpected answer that a finding shows */
};

struct visit { /* The gateway that is being checked. */
    struct doctor *d;
    struct gateway_client *client;
    struct arena arena;
    struct buf answer;
    const struct json *json; /* last answer as JSON; NULL: it is not JSON */
};

/* Sends one request. Returns the status, 0 if there was no answer. */
static int ask_gateway(struct visit *v, const char *method, const char *path, const char *body)
{
    int status = gateway_client_call(v->client, method, path, str_cstr(body), &v->answer);
    struct err e;

    if (json_parse(&v->arena, buf_str(&v->answer), &v->json, &e))
        v->json = NULL;
    return status;
}

/* --- the port --- */

/* Returns 0 if the address can be bound, else errno. */
static int try_port(const char *listen_at)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all = NULL;
    const char *colon = strrchr(listen_at, ':');
    char host[256];
    int on = 1, failure = 0, fd;

    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - listen_at), listen_at);
    if (host[0] == '[') {
        memmove(host, host + 1, strlen(host));
        host[strcspn(host, "]")] = 0;
    }
    if (getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &all))
        return EADDRNOTAVAIL;
    fd = socket(all->ai_family, all->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, all->ai_addr, all->ai_addrlen))
        failure = errno;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(all);
    return failure;
}

/* Returns true if a gateway runs at --listen. */
static bool check_port(struct visit *v)
{
    const char *at = v->d->config->listen_at;
    int failure = try_port(at), status;

    if (failure == 0) {
        doctor_add(v->d, "port", FINDING_OK, NULL, "%s is free", at);
        return false;
    }
    if (failure != EADDRINUSE) {
        doctor_add(v->d, "port", FINDING_ERROR,
                   failure == EACCES ? "choose a --listen port from 1024 on"
                                     : "choose a --listen address of this machine",
                   "%s cannot be opened: %s", at, strerror(failure));
        return false;
    }
    status = ask_gateway(v, "GET", "/health", "");
    if (v->json && json_get(v->json, "session_server_instance_id")) {
        doctor_add(v->d, "port", FINDING_OK, NULL, "%s: a gateway runs here", at);
        return true;
    }
    if (status == 0 && v->d->config->listen_tls) {
        doctor_add(v->d, "port", FINDING_ERROR,
                   v->d->config->tls_client_ca ? "doctor shows no certificate: ask with curl --cert"
                                               : "reload the gateway if its certificate is new",
                   "%s cannot be asked over TLS: %.*s", at,
                   (int)MIN_OF(v->answer.len, (size_t)ANSWER_SHOWN), v->answer.p);
        return false;
    }
    doctor_add(
        v->d, "port", FINDING_ERROR, "find it with `ss -ltnp`, or choose a different --listen",
        "%s belongs to a different program (its answer to /health has status %d)", at, status);
    return false;
}

/* --- engines --- */

static bool is_reached(const struct json *engine)
{
    return json_is_true(json_get(engine, "answers"));
}

static size_t count_reached(const struct json *engines)
{
    size_t n = 0;

    for (size_t i = 0; engines && json_at(engines, i); i++)
        n += is_reached(json_at(engines, i));
    return n;
}

/* Appends what to do about a refused key: the caller has none, or the gateway does not know it. */
static void add_key_cure(const struct config *c, struct buf *cure)
{
    if (!c->admin_key_file)
        buf_puts(cure, "the gateway has keys: run doctor with its --config or --admin-key-file");
    else
        buf_printf(cure,
                   "the gateway does not know the first key of %s: run doctor with its %s, or "
                   "reload it (HUP) if that file is its own and the key is new",
                   c->admin_key_file, c->config_file ? "--config" : "--config or --admin-key-file");
}

/* Adds a finding with the unexpected answer to one of our requests. */
static void add_failure(struct visit *v, const char *check, const char *request, int status)
{
    struct str answer = str_trim(buf_str(&v->answer));
    struct buf cure = {0};

    if (status == 401 || status == 403)
        add_key_cure(v->d->config, &cure);
    else
        buf_puts(&cure, "search troubleshooting.md for a word of the answer");
    buf_add_c(&cure, 0);
    doctor_add(v->d, check, FINDING_ERROR, cure.p, "%s: status %d: %.*s", request, status,
               (int)MIN_OF(answer.len, (size_t)ANSWER_SHOWN), answer.p ? answer.p : "");
    buf_done(&cure);
}

/* Returns 1 if an engine answers, 0 if there is no such engine, -1 if the gateway says nothing. */
static int visit_engines(struct visit *v)
{
    uint64_t end = clock_ms() + ENGINE_WAIT_MS;
    const struct json *engines;
    size_t reached;
    int status;

    do {
        status = ask_gateway(v, "GET", "/admin/engines", "");
        engines = v->json ? json_get(v->json, "engines") : NULL;
        reached = count_reached(engines);
        if (status != 200 || (engines && reached == engines->n) || clock_ms() > end)
            break;
        (void)usleep(POLL_US);
    } while (true);
    if (status != 200 || !engines) {
        add_failure(v, "engine", "GET /admin/engines", status);
        return -1;
    }
    for (size_t i = 0; json_at(engines, i); i++) {
        const struct json *engine = json_at(engines, i), *text = json_get(engine, "engine");
        struct str name = text ? json_string(text) : (struct str){0};

        doctor_add(
            v->d, "engine", is_reached(engine) ? FINDING_OK : FINDING_ERROR,
            is_reached(engine) ? NULL
                               : "start the engine, or correct --engine; its /health must answer",
            "%.*s: %s", (int)name.len, name.p, is_reached(engine) ? "answers" : "does not answer");
    }
    if (engines->n == 0)
        doctor_add(v->d, "engine", FINDING_ERROR, "set --engine, or POST /admin/engines",
                   "there is no engine");
    return reached > 0 ? 1 : 0;
}

/* --- one call --- */

/* Adds the verdict on the exported trajectory, which must have the sampled tokens. */
static void judge_export(struct visit *v)
{
    const struct json *all = v->json ? json_get(v->json, "trajectories") : NULL;
    const struct json *t = all ? json_at(all, 0) : NULL;
    const struct json *prompt = json_get(t, "prompt_ids"), *ids = json_get(t, "response_ids");
    const struct json *logprobs = json_get(t, "response_logprobs");

    if (!json_is(ids, JSON_ARRAY) || ids->n == 0 || !json_is(prompt, JSON_ARRAY))
        add_failure(v, "call", "the trajectory has no sampled tokens", 200);
    else if (!json_is(logprobs, JSON_ARRAY) || json_is_null(json_at(logprobs, 0)))
        doctor_add(v->d, "call", FINDING_WARNING, "start the engine as engines.md says",
                   "captured and exported %zu sampled tokens, but the engine reports no logprobs",
                   (size_t)ids->n);
    else
        doctor_add(v->d, "call", FINDING_OK, NULL,
                   "captured and exported: %zu prompt tokens, %zu sampled with logprobs",
                   (size_t)prompt->n, (size_t)ids->n);
}

/* Makes a session, a call and an export. Deletes the session at the end. */
static void check_call(struct visit *v)
{
    static const char chat[] = "{\"model\": \"policy\", \"max_tokens\": 16, \"messages\": "
                               "[{\"role\": \"user\", \"content\": \"Say hello.\"}]}";
    int status = ask_gateway(v, "POST", "/sessions", "{\"sink\": false}");
    const struct json *made = v->json ? json_get(v->json, "session_id") : NULL;
    struct str id = made ? json_string(made) : (struct str){0};
    const char *path;

    if (!id.len) {
        add_failure(v, "call", "POST /sessions", status);
        return;
    }
    path = arena_printf(&v->arena, "/sessions/%.*s", (int)id.len, id.p).p;
    status =
        ask_gateway(v, "POST", arena_printf(&v->arena, "%s/v1/chat/completions", path).p, chat);
    if (status != 200) {
        add_failure(v, "call", "POST /v1/chat/completions", status);
    } else {
        status = ask_gateway(v, "GET", arena_printf(&v->arena, "%s/trajectories", path).p, "");
        if (status == 200)
            judge_export(v);
        else
            add_failure(v, "call", "GET /trajectories", status);
    }
    status = ask_gateway(v, "DELETE", path, "");
    if (status < 200 || status > 299)
        add_failure(v, "call", "DELETE /sessions/ID", status);
}

/* Reports whether the gateway is paused, which may delay calls for hours. */
static bool is_paused(struct visit *v)
{
    int64_t paused = 0;

    (void)ask_gateway(v, "GET", "/health", "");
    return v->json && json_get(v->json, "paused") &&
           json_to_i64(json_get(v->json, "paused"), &paused) == 0 && paused > 0;
}

static void visit_gateway(struct visit *v)
{
    int engines = visit_engines(v);

    if (engines <= 0)
        doctor_add(v->d, "call", FINDING_ERROR,
                   engines < 0 ? "cure the refused request first" : "cure the engine first",
                   "was not tried");
    else if (is_paused(v))
        doctor_add(v->d, "call", FINDING_WARNING, "POST /admin/resume",
                   "was not tried: the gateway holds all calls (POST /admin/pause)");
    else
        check_call(v);
}

/* --- choosing the gateway --- */

static volatile sig_atomic_t
    own_pid; /* pid of the gateway that this command has started; 0: it has started none */

/* Ends that gateway at INT, TERM or HUP. Then every request fails, and the command cleans up and
 * ends. A second signal ends the command itself. */
static void on_end_signal(int signo)
{
    (void)signo;
    if (own_pid > 0)
        (void)kill((pid_t)own_pid, SIGTERM);
}

static void catch_ends(void)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = on_end_signal, .sa_flags = SA_RESETHAND | SA_RESTART};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        (void)sigaction(all[i], &a, NULL);
}

/* Makes the client. Returns NULL after adding a finding. */
static struct gateway_client *open_client(struct doctor *d, struct gateway_client_options o)
{
    struct buf mistakes = {0};
    struct gateway_client *c;

    o.key_file = d->config->admin_key_file;
    c = gateway_client_new(&o, &mistakes);

    if (!c)
        doctor_add(d, "call", FINDING_ERROR, "run rollgate doctor as the gateway's user", "%.*s",
                   (int)mistakes.len, mistakes.p);
    buf_done(&mistakes);
    return c;
}

/* Reports whether every worker has started. A router answers GET /health before that. */
static bool all_workers_serve(struct visit *v)
{
    int status = ask_gateway(v, "GET", "/health", "");
    const struct json *workers = v->json ? json_get(v->json, "workers") : NULL;
    int64_t total = 0, ready = 0;

    return status == 200 && json_to_i64(json_get(workers, "total"), &total) == 0 &&
           json_to_i64(json_get(workers, "ready"), &ready) == 0 && ready == total;
}

/* Waits until the gateway serves. Returns false if it does not. */
static bool await_own(struct visit *v, struct own_gateway *g)
{
    uint64_t end = clock_ms() + (uint64_t)v->d->config->start_timeout_ms;
    struct buf why = {0};
    bool lives = true, serves = false;

    while (lives && !serves && clock_ms() < end) {
        (void)usleep(POLL_US);
        lives = own_gateway_lives(g, &why);
        serves = lives && all_workers_serve(v);
    }
    if (!serves)
        doctor_add(v->d, "call", FINDING_ERROR, "search troubleshooting.md for a word of it",
                   "a gateway with these settings %s: %.*s",
                   lives ? "does not serve within --start-timeout" : "does not start", (int)why.len,
                   why.p ? why.p : "");
    buf_done(&why);
    return serves;
}

/* Starts a gateway and checks it. */
static void visit_own(struct visit *v)
{
    struct own_gateway g;
    struct err e;

    if (own_gateway_start(&g, v->d->config, v->d->argc, v->d->argv, &e)) {
        doctor_add(v->d, "call", FINDING_ERROR, "free /tmp and loopback", "was not tried: %s",
                   e.text);
    } else {
        own_pid = g.pid;
        v->client = open_client(v->d, (struct gateway_client_options){.url = g.url});
        if (v->client && await_own(v, &g))
            visit_gateway(v);
        gateway_client_free(v->client);
        v->client = NULL;
    }
    own_gateway_stop(&g);
    own_pid = 0;
}

void doctor_check_gateway(struct doctor *d)
{
    struct visit v = {.d = d};
    struct gateway_client_options o = {0};
    struct buf url = {0};

    catch_ends();
    local_address_use(d->config, &o, &url);
    v.client = open_client(d, o);
    if (v.client) {
        bool runs = check_port(&v);

        if (runs)
            visit_gateway(&v);
        gateway_client_free(v.client);
        v.client = NULL;
        if (!runs)
            visit_own(&v);
    }
    buf_done(&url);
    buf_done(&v.answer);
    arena_done(&v.arena);
}
