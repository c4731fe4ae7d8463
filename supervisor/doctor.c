/* The command itself: order of the checks, and the text or JSON that is made of the findings
 * (doctor.h). */
#include "supervisor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "supervisor/commands.h"
#include "worker/worker.h"

static const char *const level_names[] = {
    [FINDING_OK] = "ok", [FINDING_WARNING] = "warning", [FINDING_ERROR] = "error"};

void doctor_add(struct doctor *d, const char *check, enum finding_level level, const char *cure,
                const char *format, ...)
{
    struct buf text = {0};
    va_list args;

    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    *vec_push(&d->findings) = (struct finding){.check = check,
                                               .level = level,
                                               .text = buf_take(&text),
                                               .cure = cure ? mem_strdup(cure) : NULL};
}

static bool has_errors(const struct doctor *d)
{
    for (size_t i = 0; i < d->findings.n; i++) {
        if (d->findings.at[i].level == FINDING_ERROR)
            return true;
    }
    return false;
}

/* Adds one finding for each line. Lines about the model belong to the check of that name. */
static void add_lines(struct doctor *d, struct str lines, enum finding_level level)
{
    while (lines.len) {
        struct str line = str_cut(&lines, '\n');
        bool model = str_starts(line, STR("--model: "));

        doctor_add(d, model ? "model" : "settings", level,
                   model ? "set --model to a local folder that `rollgate check DIR` accepts"
                         : "correct the setting; `rollgate config --docs` lists all",
                   "%.*s", (int)line.len, line.p);
    }
}

/* Checks the settings like `rollgate config --check`, and the model. Returns false if a gateway
 * cannot start with them. */
static bool check_settings(struct doctor *d)
{
    const struct model *m = NULL;
    struct buf mistakes = {0}, warnings = {0}, text = {0};
    bool good;
    struct err e;

    commands_check(d->config, COMMANDS_MODEL, &mistakes, &warnings);
    good = mistakes.len == 0;
    if (good)
        doctor_add(d, "settings", FINDING_OK, NULL, "are valid");
    add_lines(d, buf_str(&mistakes), FINDING_ERROR);
    add_lines(d, buf_str(&warnings), FINDING_WARNING);
    if (good && worker_load(d->config, &m, &text, &e)) {
        doctor_add(d, "model", FINDING_ERROR, "`rollgate check DIR` reports more", "%s", e.text);
        good = false;
    } else if (good) {
        bool ready;

        buf_clear(&text);
        ready = worker_judge_model(m, &text);
        doctor_add(d, "model", ready ? FINDING_OK : FINDING_WARNING,
                   ready ? NULL : "`rollgate check DIR` lists what would be better", "%.*s",
                   (int)text.len, text.p);
        worker_unload(m);
    }
    buf_done(&mistakes);
    buf_done(&warnings);
    buf_done(&text);
    return good;
}

static void check_sinks(struct doctor *d)
{
    const struct config *c = d->config;
    struct err e;

    for (size_t i = 0; i < c->sink.n; i++) {
        bool fails = worker_reach_sink(c->sink.at[i], &e);

        doctor_add(d, "sink", fails ? FINDING_ERROR : FINDING_OK,
                   fails ? "start it, or correct --sink; until then sessions wait in the spool"
                         : NULL,
                   "%s: %s", c->sink.at[i], fails ? e.text : "takes sessions");
    }
}

static void print_lines(const struct doctor *d)
{
    for (size_t i = 0; i < d->findings.n; i++) {
        const struct finding *f = &d->findings.at[i];

        printf("%-8s %-12s %s", level_names[f->level], f->check, f->text);
        if (f->cure)
            printf(" -> %s", f->cure);
        printf("\n");
    }
}

static void print_json(const struct doctor *d)
{
    struct buf out = {0};
    struct json_out o = json_out_to(&out);

    json_out_obj(&o);
    json_out_member_bool(&o, "ok", !has_errors(d));
    json_out_member_arr(&o, "findings");
    for (size_t i = 0; i < d->findings.n; i++) {
        const struct finding *f = &d->findings.at[i];

        json_out_obj(&o);
        json_out_member_cstr(&o, "check", f->check);
        json_out_member_cstr(&o, "level", level_names[f->level]);
        json_out_member_cstr(&o, "text", f->text);
        json_out_member_str(&o, "cure", f->cure ? str_cstr(f->cure) : (struct str){0});
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    printf("%.*s\n", (int)out.len, out.p);
    buf_done(&out);
}

int doctor_report(struct doctor *d, bool json)
{
    int rc = has_errors(d) ? 1 : 0;

    if (json)
        print_json(d);
    else
        print_lines(d);
    for (size_t i = 0; i < d->findings.n; i++) {
        free(d->findings.at[i].text);
        free(d->findings.at[i].cure);
    }
    vec_done(&d->findings);
    return rc;
}

int doctor_command(int argc, char **argv)
{
    bool json = command_line_take_flag(&argc, argv, "--json");
    struct config *c = commands_load(argc, argv, COMMANDS_SYNTAX);
    struct doctor d = {.config = c, .argc = argc, .argv = argv};
    int rc;

    if (!c)
        return 2;
    log_setup("doctor", LOG_ERROR, LOG_TEXT); /* the findings already say what the log would */
    doctor_check_machine(&d);
    if (check_settings(&d)) {
        check_sinks(&d);
        doctor_check_gateway(&d);
    } else {
        doctor_add(&d, "call", FINDING_ERROR, "cure settings and model first", "was not tried");
    }
    rc = doctor_report(&d, json);
    config_free(c);
    return rc;
}
