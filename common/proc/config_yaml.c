/*
 * Reads the configuration file: one flat mapping from setting to scalar, or to a sequence of
 * scalars if the setting may be repeated. The file is read event by event, because events carry the
 * line number for mistakes.
 *
 * Every value goes through config_set, like a flag's value. All mistakes are collected. Only text
 * that is not YAML ends the reading. A nested mapping or sequence is reported and skipped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <yaml.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/proc/config_internal.h"

struct yaml_reader {
    struct config_load *load;
    const char *path;
    yaml_parser_t parser;
    const struct config_row *row; /* setting whose value comes next; NULL: a key comes next */
    bool unknown;                 /* the value that comes next belongs to no setting */
    bool list;                    /* inside a sequence */
    int depth;                    /* depth of mappings and sequences */
    bool *seen;                   /* by row: the file has set it before */
};

static void describe_mark(const struct yaml_reader *r, const yaml_mark_t *mark, char *out,
                          size_t size)
{
    (void)snprintf(out, size, "%s:%zu", r->path, mark->line + 1);
}

/* Handles a scalar: a key, or the value of the preceding key. */
static void handle_scalar(struct yaml_reader *r, const yaml_event_t *event)
{
    struct str text = str_of((const char *)event->data.scalar.value, event->data.scalar.length);
    bool bare = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    char place[512];

    describe_mark(r, &event->start_mark, place, sizeof(place));
    if (!r->row && !r->unknown) {
        r->row = config_row_find(text);
        r->unknown = !r->row;
        if (!r->row)
            config_unknown(r->load, text, place);
        else if (r->seen[r->row - config_rows])
            buf_printf(r->load->mistakes, "%s: %s: set twice\n", place, r->row->flag);
        else
            r->seen[r->row - config_rows] = true;
        return;
    }
    if (r->row && bare && (str_eq_c(text, "null") || str_eq_c(text, "~")))
        text = str_of("", 0);
    if (r->row && r->row->offset == offsetof(struct config, config_file))
        buf_printf(r->load->mistakes, "%s: config: not allowed in a file\n", place);
    else if (r->row)
        config_set(r->load, r->row, text, CONFIG_FROM_FILE, place);
    if (!r->list) {
        r->row = NULL;
        r->unknown = false;
    }
}

/* Begins a mapping or sequence. Only lists of values may be inside of the one mapping. */
static void begin_block(struct yaml_reader *r, const yaml_event_t *event)
{
    bool sequence = event->type == YAML_SEQUENCE_START_EVENT;
    char place[512];

    describe_mark(r, &event->start_mark, place, sizeof(place));
    r->depth++;
    if (r->depth == 1 && sequence)
        buf_printf(r->load->mistakes, "%s: a setting is a line \"name: value\"\n", place);
    if (r->depth == 1)
        return;
    if (r->depth > 2 || !sequence)
        buf_printf(r->load->mistakes, "%s: settings are not nested\n", place);
    else if (r->row && r->row->type != CONFIG_LIST)
        buf_printf(r->load->mistakes, "%s: %s: needs one value, not a list\n", place, r->row->flag);
    if (!sequence || (r->row && r->row->type != CONFIG_LIST)) {
        r->row = NULL;
        r->unknown = true; /* everything inside is skipped */
    }
    r->list = true;
}

/* Ends a list or the file's mapping. */
static void end_block(struct yaml_reader *r)
{
    r->depth--;
    if (r->depth == 1) {
        r->list = false;
        r->row = NULL;
        r->unknown = false;
    }
}

/* Handles one event; true at the end of the file. */
static bool handle_event(struct yaml_reader *r, const yaml_event_t *event)
{
    char place[512];

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        if (r->depth == 0) {
            describe_mark(r, &event->start_mark, place, sizeof(place));
            if (event->data.scalar.length)
                buf_printf(r->load->mistakes, "%s: a setting is a line \"name: value\"\n", place);
        } else {
            handle_scalar(r, event);
        }
        return false;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        begin_block(r, event);
        return false;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        end_block(r);
        return false;
    case YAML_ALIAS_EVENT:
        describe_mark(r, &event->start_mark, place, sizeof(place));
        buf_printf(r->load->mistakes, "%s: aliases are not supported\n", place);
        r->row = NULL;
        r->unknown = false;
        return false;
    case YAML_STREAM_END_EVENT:
        return true;
    default:
        return false;
    }
}

/* Reads a file. A file that cannot be read is a mistake like any other. */
void config_read_yaml(struct config_load *l, const char *path)
{
    struct yaml_reader r = {.load = l, .path = path};
    FILE *file = fopen(path, "re");
    bool end = false;

    if (!file) {
        buf_printf(l->mistakes, "%s: %s\n", path, strerror(errno));
        return;
    }
    if (!yaml_parser_initialize(&r.parser)) {
        buf_printf(l->mistakes, "%s: no YAML parser\n", path);
        (void)fclose(file);
        return;
    }
    yaml_parser_set_input_file(&r.parser, file);
    r.seen = mem_calloc(config_n_rows, sizeof(*r.seen));
    while (!end) {
        yaml_event_t event;

        if (!yaml_parser_parse(&r.parser, &event)) {
            buf_printf(l->mistakes, "%s:%zu: %s\n", path, r.parser.problem_mark.line + 1,
                       r.parser.problem ? r.parser.problem : "cannot be read");
            break;
        }
        end = handle_event(&r, &event);
        yaml_event_delete(&event);
    }
    free(r.seen);
    yaml_parser_delete(&r.parser);
    (void)fclose(file);
}
