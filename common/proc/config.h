/*
 * struct config: the settings of one run, from defaults, a YAML file, the environment
 * (ROLLGATE_...) and flags; later ones win in this order. config.def holds the one row per setting
 * from which everything here comes. All mistakes of a configuration are reported in one run, each
 * with its place (file and line, variable or flag). Children inherit the loaded config; a reload
 * changes the settings marked LIVE in place and no others.
 */
#ifndef RG_PROC_CONFIG_H
#define RG_PROC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;

/* DURABILITY_PROCESS, HISTORY_TREE ... */
#define V(value, text) value,
#define E(set, values) enum config_##set{values};
#include "common/proc/config.def"

struct config_list {
    char **at;
    size_t n;
};

#define CONFIG_C_BOOL bool
#define CONFIG_C_INT int64_t
#define CONFIG_C_DURATION int64_t
#define CONFIG_C_SIZE int64_t
#define CONFIG_C_STRING char *
#define CONFIG_C_PATH char *
#define CONFIG_C_LIST struct config_list
#define CONFIG_C_ENUM int

struct config {
#define X(type, field, flag, deflt, min, max, set, reload, help) CONFIG_C_##type field;
#include "common/proc/config.def"
    char *listen_at;         /* --listen without its options */
    bool listen_tls;         /* they have tls */
    bool worker_base_given;  /* --worker-base was set, maybe to 0: there are other nodes */
    struct config_list args; /* what stood on the command line beside flags */

    /* for reloads */
    int argc;
    char *const *argv;           /* borrowed from main */
    struct config_list replaced; /* strings of earlier loads that somebody may still read */
};

/* Reads everything: flags from argv[1..], the environment, the YAML file that --config names.
 * Returns NULL and appends one line per mistake to `mistakes`. Workers, routers and the folders are
 * resolved to what will be used (no 0 or NULL left in them), and every path is absolute. */
struct config *config_load(int argc, char *const *argv, struct buf *mistakes);

/* The same, but never NULL: what is wrong keeps its default, so that the rest can be checked, too.
 */
struct config *config_load_rest(int argc, char *const *argv, struct buf *mistakes);

/* Frees all; NULL is accepted. */
void config_free(struct config *c);

/* Loads once more from the same command line and environment; as config_load. */
struct config *config_load_again(const struct config *c, struct buf *mistakes);

/* Takes over in place what a reload may change: readers see it at their next look. Strings that
 * were replaced live on until config_free, because somebody may have borrowed them. */
void config_apply(struct config *live, const struct config *fresh);

/* Both, without a word: for children, after the supervisor has checked the file. */
void config_reload(struct config *live);

/* Appends the names of settings that differ between two configs and that a reload cannot apply,
 * separated by ", ". */
void config_unreloadable(const struct config *old, const struct config *fresh, struct buf *names);

/* Appends the effective settings as a YAML file that loads to the same config. */
void config_dump(const struct config *c, struct buf *out);

/* Appends a YAML file with every setting in comments. */
void config_docs(struct buf *out);

/* Appends a page in Markdown: every limit (docs/limits-table.md). */
void config_limits(struct buf *out);

/* Appends the manual page of the settings (roff, rollgate.yaml(5)). */
void config_manual(struct buf *out);

/* Returns a flag's path from / on; the caller frees it. NULL after adding a line to `mistakes`:
 * only a shell would read it ("~/x"), or the working folder is gone. */
char *config_absolute_path(const char *flag, const char *path, struct buf *mistakes);

/* "10s" "250ms" "1.5h" "90" -> milliseconds; "64k" "4MiB" "2g" "100" -> bytes. 0 / -1. */
int config_parse_duration(struct str text, int64_t *ret_ms);
int config_parse_size(struct str text, int64_t *ret_bytes);

#endif
