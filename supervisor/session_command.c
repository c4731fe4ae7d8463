/* `rollgate session show ID` (session_command.h): the state, and one branch with its tokens. */
#include "supervisor/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/codec/json.h"
#include "common/proc/command_line.h"
#include "common/proc/gateway_client.h"
#include "supervisor/terminal_text.h"
#include "supervisor/token_file.h"

struct session_page {
    struct gateway_client *client;
    bool json, color;
    struct buf state, file;
    struct arena arena;
    const struct json *session;
    struct token_file tokens;
};

/* --- values --- */

static uint32_t index_of(const struct json *v, const char *name)
{
    int64_t n = 0;

    return json_to_i64(json_get(v, name), &n) == 0 && n >= 0 ? (uint32_t)MIN_OF(n, INT32_MAX) : 0;
}

/* Writes the weight versions of a turn, separated by commas. */
static void write_versions(const struct json *turn, struct buf *out)
{
    const struct json *spans = json_get(turn, "weight_versions"), *span;

    for (uint32_t i = 0; (span = json_at(spans, i)); i++) {
        if (out->len > 0)
            buf_puts(out, ", ");
        buf_add_str(out, json_text(json_get(span, "version")));
    }
}

/* --- the page --- */

static void print_head(const struct session_page *p)
{
    static const char *const parts[] = {"start", "queue", "engine", "gateway", "tools", "scoring"};
    const struct json *s = p->session, *time = json_get(s, "time_s");
    double all = json_number_of(time, "run");
    char id[TERMINAL_NAME], phase[TERMINAL_NAME], reward[TERMINAL_NAME];

    printf("session  %s   %s   %.0f turns   %.0f tokens, %.0f sampled   reward %s\n",
           terminal_name(json_string(json_get(s, "session_id")), id),
           terminal_name(json_string(json_get(s, "phase")), phase), json_number_of(s, "turns"),
           json_number_of(s, "num_tokens"), json_number_of(s, "sampled_tokens"),
           json_is_null(json_get(s, "reward"))
               ? "unknown"
               : terminal_name(json_text(json_get(s, "reward")), reward));
    printf("time     %.2f s", all);
    for (size_t i = 0; i < ARRAY_LEN(parts) && all > 0; i++)
        printf("   %s %.1f %%", parts[i], json_number_of(time, parts[i]) * 100 / all);
    printf("\n");
}

/* Which branch the page has, by its last answer. */
static void print_branch(const struct session_page *p)
{
    const struct json *turns = json_get(p->tokens.trajectory, "turns"), *turn, *last = NULL;
    char name[TERMINAL_NAME];

    for (uint32_t i = 0; (turn = json_at(turns, i)); i++)
        last = turn;
    if (last)
        printf("branch   the newest of %.0f, ends with answer %s\n",
               json_number_of(p->session, "num_branches"),
               terminal_name(json_string(json_get(last, "response_id")), name));
    else
        printf("branch   no answer yet\n");
}

static void print_drift(const struct session_page *p)
{
    const struct json *drift = json_get(json_get(p->tokens.trajectory, "extra_fields"), "drift");
    const struct json *first = json_get(drift, "first");
    char kind[TERMINAL_NAME];

    if (json_is(drift, JSON_OBJECT))
        printf("drift    %.0f tokens of this branch", json_number_of(drift, "count"));
    else
        printf("drift    not checked");
    if (json_is(first, JSON_OBJECT))
        printf(", the first at token %.0f (%s)", json_number_of(first, "position"),
               terminal_name(json_string(json_get(first, "kind")), kind));
    printf("\n");
}

/* Returns the colour of a response's token: by its difference if a trainer reported one, else by
 * its logprob. */
static const char *color_of(const struct token_file *f, uint32_t i)
{
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[35m", "\033[31m"};
    static const double differences[] = {0.01, 0.1, 0.5}, logprobs[] = {0.1, 1, 3};
    const double *limits = logprobs;
    double v = f->logprobs ? -(double)f->logprobs[i] : 0;
    int at = 0;

    if (f->trained && f->logprobs && !isnan(f->trained[i])) {
        limits = differences;
        v = fabs((double)f->trained[i] - (double)f->logprobs[i]);
    }
    while (at < 3 && v > limits[at])
        at++;
    return colors[at];
}

static void print_tokens(const struct session_page *p, uint32_t from, uint32_t to)
{
    const struct token_file *f = &p->tokens;

    printf("    ");
    for (uint32_t i = from; i < to; i++) {
        struct str text = token_file_text(f, f->ids[f->total - f->n + i]);

        if (p->color)
            printf("%s", color_of(f, i));
        terminal_write(stdout, text.p ? text : STR("\xef\xbf\xbd"), 4);
        if (p->color)
            printf("\033[0m");
    }
    printf("\n");
}

/* Prints the mean logprob, and the difference to the trainer's if that is known. */
static void print_figures(const struct token_file *f, uint32_t from, uint32_t to)
{
    double sum = 0, difference = 0, largest = 0;
    uint32_t compared = 0;

    for (uint32_t i = from; i < to && f->logprobs; i++) {
        double d = 0;

        sum += (double)f->logprobs[i];
        if (!f->trained || isnan(f->trained[i]))
            continue;
        d = (double)f->trained[i] - (double)f->logprobs[i];
        compared++;
        difference += d;
        largest = fabs(d) > fabs(largest) ? d : largest;
    }
    if (to > from && f->logprobs)
        printf("   mean logprob %.3f", sum / (to - from));
    if (compared > 0)
        printf("   trainer: mean difference %.4f, largest difference %.4f", difference / compared,
               fabs(largest));
}

static void print_turn(const struct session_page *p, const struct json *turn)
{
    uint32_t to = MIN_OF(index_of(turn, "end"), p->tokens.n);
    uint32_t from = MIN_OF(index_of(turn, "start"), to);
    char name[TERMINAL_NAME];
    struct buf versions = {0};

    write_versions(turn, &versions);
    printf("assistant   %s", terminal_name(json_string(json_get(turn, "finish_reason")), name));
    if (versions.len > 0)
        printf("   version %s", terminal_name(buf_str(&versions), name));
    print_figures(&p->tokens, from, to);
    printf("\n");
    print_tokens(p, from, to);
    buf_done(&versions);
}

static void print_message(const struct json *message)
{
    const struct json *content = json_get(message, "content");
    char role[TERMINAL_NAME];
    struct buf text = {0};

    printf("%s\n    ", terminal_name(json_string(json_get(message, "role")), role));
    if (json_is(content, JSON_STRING)) {
        terminal_write(stdout, json_string(content), 4);
    } else if (!json_is_null(content)) {
        json_write(&text, content);
        terminal_write(stdout, buf_str(&text), 4);
    }
    printf("\n");
    buf_done(&text);
}

/* Prints the messages. A message that the model generated is printed as the tokens of its turn. */
static void print_page(const struct session_page *p)
{
    const struct json *messages = json_get(p->tokens.trajectory, "messages"), *m;
    const struct json *turns = json_get(p->tokens.trajectory, "turns");
    uint32_t turn = 0;

    print_head(p);
    print_branch(p);
    print_drift(p);
    printf("\n");
    for (uint32_t i = 0; (m = json_at(messages, i)); i++) {
        if (json_is_true(json_get(m, "generated")) && json_at(turns, turn))
            print_turn(p, json_at(turns, turn++));
        else
            print_message(m);
    }
    for (; json_at(turns, turn); turn++) /* completions have turns but no messages */
        print_turn(p, json_at(turns, turn));
}

/* --- JSON --- */

static void put_logprob(struct json_out *o, const char *name, const float *values, uint32_t i)
{
    json_out_key(o, name);
    if (values && !isnan(values[i]))
        json_out_double(o, (double)values[i]);
    else
        json_out_null(o);
}

static void put_turn_tokens(struct json_out *o, const struct token_file *f, const struct json *turn)
{
    uint32_t to = MIN_OF(index_of(turn, "end"), f->n);

    json_out_member_arr(o, "tokens");
    for (uint32_t i = MIN_OF(index_of(turn, "start"), to); i < to; i++) {
        int32_t id = f->ids[f->total - f->n + i];

        json_out_obj(o);
        json_out_member_i64(o, "id", id);
        json_out_member_str(o, "text", token_file_text(f, id));
        put_logprob(o, "logprob", f->logprobs, i);
        put_logprob(o, "trainer_logprob", f->trained, i);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

static void print_session_json(const struct session_page *p)
{
    static const char *const copied[] = {"messages", "extra_fields"};
    const struct json *t = p->tokens.trajectory, *turn;
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    json_out_obj(&o);
    json_out_member_value(&o, "session", p->session);
    for (size_t i = 0; i < ARRAY_LEN(copied) && t; i++)
        json_out_member_value(&o, copied[i], json_get(t, copied[i]));
    json_out_member_arr(&o, "turns");
    for (uint32_t i = 0; (turn = json_at(json_get(t, "turns"), i)); i++) {
        json_out_value(&o, turn);
        text.len--; /* removes the last brace, because more members follow */
        put_turn_tokens(&o, &p->tokens, turn);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    printf("%.*s\n", (int)text.len, text.p);
    buf_done(&text);
}

/* --- the command --- */

static int print_failure(struct str why)
{
    struct arena a = {0};

    fprintf(stderr, "rollgate session: ");
    terminal_write(stderr, gateway_client_reason(&a, why), 4);
    fprintf(stderr, "\n");
    arena_done(&a);
    return 1;
}

static int read_page(struct session_page *p, const char *id)
{
    char path[256];
    struct err e;

    (void)snprintf(path, sizeof(path), "/sessions/%s", id);
    if (gateway_client_call(p->client, "GET", path, (struct str){0}, &p->state) != 200)
        return print_failure(buf_str(&p->state));
    (void)snprintf(path, sizeof(path), "/sessions/%s/tokens?drift=1", id);
    if (gateway_client_call(p->client, "GET", path, (struct str){0}, &p->file) != 200)
        return print_failure(buf_str(&p->file));
    if (json_parse(&p->arena, buf_str(&p->state), &p->session, &e) ||
        token_file_read(&p->tokens, buf_str(&p->file), &e))
        return print_failure(str_cstr(e.text));
    return 0;
}

static int show_session(struct session_page *p, const char *id)
{
    int rc = read_page(p, id);

    if (rc == 0 && p->json)
        print_session_json(p);
    else if (rc == 0)
        print_page(p);
    token_file_done(&p->tokens);
    arena_done(&p->arena);
    buf_done(&p->state);
    buf_done(&p->file);
    return rc;
}

int session_command(int argc, char **argv)
{
    struct gateway_client_options o =
        gateway_client_take_options(&argc, argv, "http://127.0.0.1:8600");
    struct session_page p = {.json = command_line_take_flag(&argc, argv, "--json"),
                             .color = command_line_take_flag(&argc, argv, "--color")};
    struct buf mistakes = {0};
    int rc = 1;

    if (argc != 3 || strcmp(argv[1], "show") != 0 || !gateway_client_takes_id(argv[2])) {
        fprintf(stderr, "usage: rollgate session show ID [--json] [--color] [--gateway URL] "
                        "[--key-file FILE] [--ca-file FILE]\n");
        return 2;
    }
    p.color = p.color || (isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
    p.client = gateway_client_new(&o, &mistakes);
    if (p.client)
        rc = show_session(&p, argv[2]);
    else
        fprintf(stderr, "rollgate session: %.*s", (int)mistakes.len, mistakes.p);
    gateway_client_free(p.client);
    buf_done(&mistakes);
    return rc;
}
