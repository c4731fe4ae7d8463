/* `rollgate watch` (watch_command.h): server-sent events, each printed when it is complete. */
#include "supervisor/commands.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/codec/json.h"
#include "common/net/sse.h"
#include "common/proc/command_line.h"
#include "common/proc/gateway_client.h"
#include "supervisor/terminal_text.h"

enum { EVENT_MAX = 16 << 20 };

struct watch {
    bool json;
    struct sse sse;
    struct buf data; /* data of the incomplete event */
};

/* --- lines --- */

static void print_time(void)
{
    time_t now = time(NULL);
    struct tm local;
    char text[16] = "";

    if (localtime_r(&now, &local))
        (void)strftime(text, sizeof(text), "%H:%M:%S", &local);
    printf("%s ", text);
}

/* Prints a member, if it exists: its text, or its JSON. */
static void print_member(const struct json *v, const char *name, const char *label)
{
    const struct json *member = json_get(v, name);
    char text[TERMINAL_NAME];
    struct buf other = {0};

    if (json_is_null(member))
        return;
    if (json_text(member).p) {
        printf("  %s%s", label, terminal_name(json_text(member), text));
    } else {
        json_write(&other, member);
        printf("  %s%s", label, terminal_name(buf_str(&other), text));
    }
    buf_done(&other);
}

static void print_count(const struct json *v, const char *name, const char *what)
{
    int64_t n = 0;

    if (json_to_i64(json_get(v, name), &n) == 0)
        printf("  %lld %s", (long long)n, what);
}

static void print_session(const struct json *v)
{
    print_member(v, "session_id", "");
    print_member(v, "phase", "");
    print_count(v, "turns", "turns");
    print_count(v, "tokens", "tokens");
    print_count(v, "inflight", "running");
    print_member(v, "reward", "reward ");
    print_member(json_get(v, "stop_reason"), "reason", "stop ");
    print_member(json_get(v, "labels"), "task", "task ");
}

static void print_group(const struct json *v)
{
    print_member(v, "id", "");
    print_member(v, "state", "");
    print_count(v, "succeeded", "succeeded");
    print_count(v, "running", "running");
    print_count(v, "n", "wanted");
    print_member(v, "queue", "queue ");
    print_member(v, "waits", "waits: ");
}

/* Prints all members of an event of a different kind. */
static void print_members(const struct json *v)
{
    char label[TERMINAL_NAME + 1];

    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);
        char text[TERMINAL_NAME], shown[TERMINAL_NAME];
        const struct json *member = &v->members[i].value;
        struct buf other = {0};

        (void)snprintf(label, sizeof(label), "%s", terminal_name(name, shown));
        if (!json_text(member).p)
            json_write(&other, member);
        printf("  %s=%s", label,
               terminal_name(json_text(member).p ? json_text(member) : buf_str(&other), text));
        buf_done(&other);
    }
}

static void print_line(const char *event, struct str data)
{
    struct arena a = {0};
    const struct json *v = NULL;
    char name[TERMINAL_NAME];
    struct err e;

    (void)json_parse(&a, data, &v, &e);
    print_time();
    printf("%s", terminal_name(str_cstr(event), name));
    if (strcmp(event, "session") == 0)
        print_session(v);
    else if (strcmp(event, "group") == 0)
        print_group(v);
    else
        print_members(v);
    printf("\n");
    arena_done(&a);
}

static void print_event_json(const char *event, struct str data)
{
    struct buf line = {0};
    struct json_out o = json_out_to(&line);

    json_out_obj(&o);
    json_out_member_str(&o, "event", str_cstr(event));
    json_out_member_raw(&o, "data", data);
    json_out_end_obj(&o);
    printf("%.*s\n", (int)line.len, line.p);
    buf_done(&line);
}

/* --- the stream --- */

/* Returns false if the stream is broken. */
static bool on_bytes(void *ctx, struct str bytes, struct err *e)
{
    struct watch *w = ctx;
    struct str run;
    int item;

    while ((item = sse_next(&w->sse, &bytes, &run, e)) != SSE_MORE) {
        if (item < 0)
            return false;
        if (item == SSE_DATA) {
            buf_add_str(&w->data, run);
            continue;
        }
        if (w->json)
            print_event_json(w->sse.name, buf_str(&w->data));
        else
            print_line(w->sse.name, buf_str(&w->data));
        (void)fflush(stdout);
        buf_clear(&w->data);
    }
    return true;
}

static int watch_gateway(struct gateway_client *c, const char *id, bool json)
{
    struct watch w = {.json = json, .sse = {.max_event = EVENT_MAX}};
    struct buf answer = {0};
    char path[256] = "/events";
    int status;

    if (id)
        (void)snprintf(path, sizeof(path), "/sessions/%s/events", id);
    status = gateway_client_stream(c, path, on_bytes, &w, &answer);
    if (status != 200) {
        fprintf(stderr, "rollgate watch: %s",
                status == 401 || status == 403 ? "it wants an admin key (--key-file FILE): " : "");
        terminal_write(stderr, buf_str(&answer), 4);
        fprintf(stderr, "\n");
    }
    buf_done(&w.data);
    buf_done(&answer);
    return status == 200 ? 0 : 1;
}

int watch_command(int argc, char **argv)
{
    struct gateway_client_options o =
        gateway_client_take_options(&argc, argv, "http://127.0.0.1:8600");
    bool json = command_line_take_flag(&argc, argv, "--json");
    struct gateway_client *client;
    struct buf mistakes = {0};
    int rc = 1;

    if (argc > 2 || (argc == 2 && (argv[1][0] == '-' || !gateway_client_takes_id(argv[1])))) {
        fprintf(stderr, "usage: rollgate watch [ID] [--json] [--gateway URL] [--key-file FILE] "
                        "[--ca-file FILE]\n");
        return 2;
    }
    client = gateway_client_new(&o, &mistakes);
    if (client)
        rc = watch_gateway(client, argc == 2 ? argv[1] : NULL, json);
    else
        fprintf(stderr, "rollgate watch: %.*s", (int)mistakes.len, mistakes.p);
    gateway_client_free(client);
    buf_done(&mistakes);
    return rc;
}
