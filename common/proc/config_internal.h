/*
 * What the pieces of config share: the table itself, and setting one value with its place for
 * mistakes. config_table.c owns the table, config.c loads, config_yaml.c reads files,
 * config_text.c writes help, dump and documentation.
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
    double min, max; /* in the field's unit; both 0: no range */
    const char *const *values;
    size_t n_values;
    bool live;
    size_t offset; /* offset of the field in struct config */
};

extern const struct config_row config_rows[];
extern const size_t config_n_rows;

/* Where a value came from; lists of a later source replace those of an earlier one. */
enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_PROFILE,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENV,
    CONFIG_FROM_FLAG
};

/* One load: the config in the making, where each value came from, and the mistakes so far. */
struct config_load {
    struct config *config;
    enum config_source *source; /* per row */
    struct buf *mistakes;
};

/* The row of a name ('_' and '-' are the same), or NULL. */
const struct config_row *config_row_find(struct str name);

/* Sets one value from text; a mistake is reported with `place` in front. */
void config_set(struct config_load *l, const struct config_row *row, struct str text,
                enum config_source source, const char *place);

/* Appends "place: no setting is called ..." with the nearest name. */
void config_unknown(struct config_load *l, struct str name, const char *place);

/* Whether an unknown name is so near to a setting's that it must be a slip. */
bool config_mistyped(struct str name);

/* Makes every path of the settings absolute, those inside of other values, too. A path that cannot
 * be meant is a mistake. */
void config_resolve_paths(struct config_load *l);

/* Reads the YAML file at the path. */
void config_read_yaml(struct config_load *l, const char *path);

/* The value as the user would write it. */
void config_value_text(const struct config *c, const struct config_row *row, struct buf *out);

#endif
