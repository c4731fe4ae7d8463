#include "supervisor/top_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/codec/json.h"
#include "supervisor/terminal_text.h"

static double percent_of(double part, double all)
{
    return all > 0 ? part * 100 / all : 0;
}

/* Prints the causes of ends in the answer's order, without zeros. */
static void print_causes(const struct json *total)
{
    const struct json *ended = json_get(total, "ended");
    double n = 0;

    printf("ended    ");
    for (uint32_t i = 0; json_is(ended, JSON_OBJECT) && i < ended->n; i++) {
        struct str name = json_string(&ended->members[i].key);

        if (json_to_double(&ended->members[i].value, &n) == 0 && n > 0)
            printf("   %.0f %.*s", n, (int)name.len, name.p);
    }
    printf("\n");
}

static void print_time(const struct json *total)
{
    const struct json *time = json_get(total, "time_s");
    double all = json_number_of(total, "run_s"), v = 0;

    printf("time     %8.1f s a session", json_number_of(total, "run_mean_s"));
    for (uint32_t i = 0; json_is(time, JSON_OBJECT) && i < time->n; i++) {
        struct str name = json_string(&time->members[i].key);

        if (json_to_double(&time->members[i].value, &v) == 0)
            printf("   %.*s %.1f %%", (int)name.len, name.p, percent_of(v, all));
    }
    printf("\n");
}

static void print_mismatch(const struct json *mismatch)
{
    const struct json *total = json_get(mismatch, "total");

    if (json_number_of(total, "tokens") > 0)
        printf("trainer  %8.4f mean difference   %.4f p99   %.4f largest   %.0f tokens\n",
               json_number_of(total, "mean"), json_number_of(total, "p99"),
               json_number_of(total, "max"), json_number_of(total, "tokens"));
}

static void print_slowest(const struct json *slowest)
{
    char session[TERMINAL_NAME], waited[TERMINAL_NAME];
    const struct json *v;

    for (uint32_t i = 0; i < 3 && (v = json_at(slowest, i)); i++)
        printf("slowest  %8.1f s   %s   waited for %s\n", json_number_of(v, "run_s"),
               terminal_name(json_string(json_get(v, "session_id")), session),
               terminal_name(json_string(json_get(v, "waited_for")), waited));
}

void top_print_run(struct str stats)
{
    struct arena a = {0};
    const struct json *v = NULL, *total;
    struct err e;

    if (stats.len > 0 && json_parse(&a, stats, &v, &e) == 0) {
        total = json_get(v, "total");
        if (json_number_of(total, "sessions") > 0) {
            printf("reward   %8.3f mean   %.3f deviation   %.1f %% passed   %.0f ended   "
                   "staleness %.2f\n",
                   json_number_of(total, "reward_mean"), json_number_of(total, "reward_std"),
                   json_number_of(total, "pass_rate") * 100, json_number_of(total, "sessions"),
                   json_number_of(total, "staleness_mean"));
            printf(
                "length   %8.0f tokens   %.1f turns   %.1f %% truncated   %.1f %% of sampled "
                "tokens trained   %.0f of %.0f drifted\n",
                json_number_of(total, "tokens_mean"), json_number_of(total, "turns_mean"),
                percent_of(json_number_of(total, "truncated"), json_number_of(total, "sessions")),
                percent_of(json_number_of(total, "trained_tokens"),
                           json_number_of(total, "sampled_tokens")),
                json_number_of(total, "drifted"), json_number_of(total, "trajectories"));
            print_time(total);
            print_causes(total);
            print_slowest(json_get(v, "slowest"));
        }
        print_mismatch(json_get(v, "mismatch"));
    }
    arena_done(&a);
}

/* Adds a line of /metrics as a member: its name with labels, and its value. */
static void put_metric(struct json_out *o, struct str line)
{
    size_t space = line.len;
    char *end = NULL;
    double v;

    while (space > 0 && line.p[space - 1] != ' ')
        space--;
    if (line.len == 0 || line.p[0] == '#' || space < 2)
        return;
    v = strtod(line.p + space, &end); /* strtod stops at the end of the line */
    json_out_key_str(o, str_sub(line, 0, space - 1));
    json_out_double(o, v);
}

static void put_json(struct json_out *o, const char *name, struct str json)
{
    json_out_key(o, name);
    if (json.len > 0)
        json_out_raw(o, json);
    else
        json_out_null(o);
}

void top_print_json(struct str stats, struct str fleet, struct str page)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    json_out_obj(&o);
    put_json(&o, "stats", stats);
    put_json(&o, "fleet", fleet);
    json_out_member_obj(&o, "metrics");
    while (page.len > 0)
        put_metric(&o, str_cut(&page, '\n'));
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    printf("%.*s\n", (int)text.len, text.p);
    buf_done(&text);
}
