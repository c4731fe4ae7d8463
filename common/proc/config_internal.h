/*
 * Shared by the files of config: the table itself, and setting one value, with its place for
 * mistakes. config_table.c owns the table, config.c loads, config_yaml.c reads files, config_text.c
 * writes help, dump and documentation.
 */
#ifndef RG_PROC_CONFIG_INTERNAL_H
#define RG_PROC_CONFIG_INTERNAL_H

#include "common/proc/config.h"

enum config_type {
    CONFIG_BOOL,
    CONFIG_INT,
    CONFIG_DURATION,
    CONFIG_SIZE,
    CONFIG_STRING,
    CONFIG_PATH,
    CONFIG_LIST,
    CONFIG_ENUM,
};

struct config_row {
    enum config_type type;
    const char *flag;
    const char *deflt;
    const char *group;
    const char *help;
    double min, max; /* range in the field's unit; both 0: any */
    const char *const *values;
    size_t n_values;
    bool live;
    size_t offset; /* offset of the field in struct config */
};

extern const struct config_row config_rows[];
extern const size_t config_n_rows;

/* Source of a value. A list of a later source replaces the list of an earlier one. */
enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_PROFILE,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENV,
    CONFIG_FROM_FLAG
};

/* State of one load: the config so far, the source of each value, and the mistakes. */
struct config_load {
    struct config *config;
    enum config_source *source; /* one for each row */
    struct buf *mistakes;
};

/* Returns the row of a name ('_' equals '-'), or NULL. */
const struct config_row *config_row_find(struct str name);

/* Sets one value from text. A mistake is reported with `place` in front. */
void config_set(struct config_load *l, const struct config_row *row, struct str text,
                enum config_source source, const char *place);

/* Appends "place: no setting is called ..." with the nearest existing name. */
void config_unknown(struct config_load *l, struct str name, const char *place);

/* Reports whether an unknown name is so similar to a setting's that it must be a slip. */
bool config_mistyped(struct str name);

/* Makes every path of the settings absolute, including paths inside of other values. A path that
 * only a shell could read is a mistake. */
void config_resolve_paths(struct config_load *l);

/* Reads the YAML file at `path` and sets what it contains. */
void config_read_yaml(struct config_load *l, const char *path);

/* Appends the value as a user would write it. */
void config_value_text(const struct config *c, const struct config_row *row, struct buf *out);

#endif
