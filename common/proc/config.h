/*
 * struct config: the settings of one run, from defaults, a YAML file, the environment
 * (ROLLGATE_...) and flags. Later sources override earlier ones in this order. config.def holds one
 * row per setting, from which everything here is made. All mistakes of a configuration are reported
 * in one run, each with its place (file and line, variable or flag). Children inherit the loaded
 * config. A reload changes the settings marked LIVE in place and no others.
 */
#ifndef RG_PROC_CONFIG_H
#define RG_PROC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;

/* makes DURABILITY_PROCESS, HISTORY_TREE ... */
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

enum { CONFIG_FLEET_INLINE = 512 << 20 /* the only value of --sink-inline-max with --fleet */ };

struct config {
#define X(type, field, flag, deflt, min, max, set, reload, help) CONFIG_C_##type field;
#include "common/proc/config.def"
    char *listen_at;         /* address of --listen, without its options */
    bool listen_tls;         /* --listen has the option tls */
    bool worker_base_given;  /* --worker-base was set, even if to 0: there are other nodes */
    struct config_list args; /* arguments of the command line that are not flags */

    /* the command line again, for reloads */
    int argc;
    char *const *argv;           /* argv: borrowed from main */
    struct config_list replaced; /* strings of earlier loads that readers may still use */
};

/* Loads flags from argv[1..], the environment, and the YAML file of --config. Returns NULL and
 * appends one line per mistake to `mistakes`. Numbers of workers and routers and the folders are
 * resolved to what will be used (never 0 or NULL), and every path is absolute. */
struct config *config_load(int argc, char *const *argv, struct buf *mistakes);

/* Like config_load, but never returns NULL: a wrong setting keeps its default, so that the rest can
 * be checked, too. */
struct config *config_load_rest(int argc, char *const *argv, struct buf *mistakes);

/* Frees c and everything in it. NULL is accepted. */
void config_free(struct config *c);

/* Loads again, like config_load, from the same command line and the present environment. */
struct config *config_load_again(const struct config *c, struct buf *mistakes);

/* Copies the settings that a reload may change into `live`. Readers see them when they next read.
 * Replaced strings exist until config_free, because they may be borrowed. */
void config_apply(struct config *live, const struct config *fresh);

/* Loads again and applies, without reporting mistakes. For children: the supervisor has checked the
 * file before. */
void config_reload(struct config *live);

/* Appends the names of settings that differ between two configs but need a restart, separated by
 * commas and blanks. */
void config_unreloadable(const struct config *old, const struct config *fresh, struct buf *names);

/* Appends the effective settings as a YAML file that loads to the same config. */
void config_dump(const struct config *c, struct buf *out);

/* Appends a YAML file with every setting in comments. */
void config_docs(struct buf *out);

/* Appends every limit as a page in Markdown (docs/limits-table.md). */
void config_limits(struct buf *out);

/* Appends the manual page of the settings (roff, rollgate.yaml(5)). */
void config_manual(struct buf *out);

/* Returns the absolute path of a flag's path; the caller frees it. Returns NULL after adding a line
 * to `mistakes` if only a shell could read the path ("~/x"), or if the working folder does not
 * exist. */
char *config_absolute_path(const char *flag, const char *path, struct buf *mistakes);

/* Parse "10s" "250ms" "1.5h" "90" to milliseconds, and "64k" "4MiB" "2g" "100" to bytes. Return 0,
 * or -1 for anything else. */
int config_parse_duration(struct str text, int64_t *ret_ms);
int config_parse_size(struct str text, int64_t *ret_bytes);

#endif
