/* Settings: where they come from and how a reload applies them (config.h). Each source overrides
 * the ones before it: defaults, the YAML file, the environment, flags. Then values that depend on
 * the machine are filled in (resolve). All mistakes are collected with their places and reported
 * together.
 *
 * A reload loads everything again and copies live settings into the settings in use. Replaced
 * strings stay allocated (`replaced`), because readers may hold pointers to them. */

#include "common/proc/config.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/proc/compat.h"
#include "common/proc/config_internal.h"

extern char **environ;

/* Sets every setting to its default. Rows without a flag are titles. */
static void load_defaults(struct config_load *l)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].flag)
            config_set(l, &config_rows[i], str_cstr(config_rows[i].deflt), CONFIG_FROM_DEFAULT,
                       "default");
    }
}

/* Loads one variable NAME=VALUE whose name begins with our prefix (`head` bytes long). */
static void load_variable(struct config_load *l, struct str entry, size_t eq, size_t head)
{
    struct str value = str_sub(entry, eq + 1, SIZE_MAX);
    const struct config_row *row;
    char name[64], place[80];

    if (eq - head >= sizeof(name))
        return;
    for (size_t i = head; i < eq; i++)
        name[i - head] = (char)tolower((unsigned char)entry.p[i]);
    name[eq - head] = 0;
    (void)snprintf(place, sizeof(place), "%.*s", (int)eq, entry.p);
    row = config_row_find(str_cstr(name));
    /* other programs' variables may begin with it, too; only likely slips are reported */
    if (!row) {
        if (config_mistyped(str_cstr(name)))
            config_unknown(l, str_cstr(name), place);
        return;
    }
    while (row->type == CONFIG_LIST && str_find(value, STR("\n"), 0) != SIZE_MAX)
        config_set(l, row, str_cut(&value, '\n'), CONFIG_FROM_ENV, place);
    config_set(l, row, value, CONFIG_FROM_ENV, place);
}

/* Loads the variables of the environment, such as ROLLGATE_MAX_NODES=... A list has one value per
 * line. */
static void load_environment(struct config_load *l)
{
    static const struct str head = STR_LIT("ROLLGATE_");

    for (char **at = environ; *at; at++) {
        struct str entry = str_cstr(*at);
        size_t eq = str_find(entry, STR("="), 0);

        if (str_starts(entry, head) && eq != SIZE_MAX)
            load_variable(l, entry, eq, head.len);
    }
}

/* Reports whether the argument after a switch is the switch's value. Any other text is a separate
 * argument. */
static bool is_switch_value(const char *text)
{
    static const char *const values[] = {"on", "off", "true", "false", "yes", "no"};

    for (size_t i = 0; text && i < ARRAY_LEN(values); i++) {
        if (str_eq_nocase(str_cstr(text), str_cstr(values[i])))
            return true;
    }
    return false;
}

/* Loads the flag at argv[i]. Returns the number of arguments that it used. */
static int take_flag(struct config_load *l, int argc, char *const *argv, int i)
{
    struct str name = str_cstr(argv[i] + 2), value = {0};
    size_t eq = str_find(name, STR("="), 0);
    const struct config_row *row;
    char place[96];

    if (eq != SIZE_MAX) {
        value = str_sub(name, eq + 1, SIZE_MAX);
        name = str_sub(name, 0, eq);
    }
    (void)snprintf(place, sizeof(place), "--%.*s", (int)MIN_OF(name.len, (size_t)80), name.p);
    row = config_row_find(name);
    if (!row && str_starts(name, STR("no-")) && !value.p) {
        row = config_row_find(str_sub(name, 3, SIZE_MAX));
        value = STR("off");
        if (row && row->type != CONFIG_BOOL)
            row = NULL;
    }
    if (!row) {
        config_unknown(l, name, place);
        return 1;
    }
    if (value.p ||
        (row->type == CONFIG_BOOL && !is_switch_value(i + 1 < argc ? argv[i + 1] : NULL))) {
        config_set(l, row, value.p ? value : STR("on"), CONFIG_FROM_FLAG, place);
        return 1;
    }
    if (i + 1 >= argc) {
        buf_printf(l->mistakes, "%s: needs a value\n", place);
        return 1;
    }
    config_set(l, row, str_cstr(argv[i + 1]), CONFIG_FROM_FLAG, place);
    return 2;
}

/* Loads all flags. An argument that is not a flag belongs to the command. */
static void load_flags(struct config_load *l, int argc, char *const *argv)
{
    struct config_list *args = &l->config->args;

    for (int i = 1; i < argc;) {
        if (strncmp(argv[i], "--", 2) == 0 && argv[i][2]) {
            i += take_flag(l, argc, argv, i);
            continue;
        }
        args->at = mem_realloc_array(args->at, args->n + 1, sizeof(*args->at));
        args->at[args->n++] = mem_strdup(argv[i++]);
    }
}

/* Finds the configuration file. Its name must be known before it is read, although environment and
 * flags override its settings. */
static const char *find_file(int argc, char *const *argv)
{
    const char *path = getenv("ROLLGATE_CONFIG");

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            path = argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            path = argv[i + 1];
    }
    return path;
}

/* Returns the number of cores that this process may use: as granted by Slurm, else by the affinity
 * mask. */
static int64_t usable_cores(void)
{
    const char *slurm = getenv("SLURM_CPUS_ON_NODE");
    uint64_t granted;
    cpu_set_t set;

    if (slurm && !str_to_u64(str_cstr(slurm), 256, &granted) && granted > 0)
        return (int64_t)granted;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return MIN_OF(MAX_OF(CPU_COUNT(&set), 1), 256);
    return 1;
}

/* Returns the default of the state folder: systemd's, the user's, or /var/lib/rollgate. */
static char *default_state_dir(void)
{
    const char *dir = getenv("STATE_DIRECTORY"), *home;

    if (dir && *dir && !strchr(dir, ':'))
        return mem_strdup(dir);
    dir = getenv("XDG_STATE_HOME");
    if (dir && *dir == '/')
        return path_join(dir, "rollgate");
    home = getenv("HOME");
    return path_join(home && *home ? home : "/var/lib",
                     home && *home ? ".local/state/rollgate" : "rollgate");
}

/* Fills in settings whose default depends on the machine. */
static void resolve(struct config *c)
{
    const char *run = getenv("RUNTIME_DIRECTORY");

    if (c->workers == 0)
        c->workers = usable_cores();
    if (c->routers == 0)
        c->routers = MAX_OF((c->workers + 3) / 4, 1);
    if (!c->state_dir)
        c->state_dir = default_state_dir();
    if (!c->run_dir)
        c->run_dir =
            run && *run && !strchr(run, ':') ? mem_strdup(run) : path_join(c->state_dir, "run");
}

/* Splits --listen ADDRESS[,tls] into address and option. */
static void split_listen(struct config *c, struct buf *mistakes)
{
    struct str all = str_cstr(c->listen ? c->listen : "");
    size_t comma = str_find(all, STR(","), 0);
    struct str option;

    c->listen_at = mem_strndup(all.p, MIN_OF(comma, all.len));
    if (comma == SIZE_MAX)
        return;
    option = str_sub(all, comma + 1, SIZE_MAX);
    c->listen_tls = str_eq(option, STR("tls"));
    if (!c->listen_tls)
        buf_printf(mistakes, "--listen: \"%.*s\" is no option: tls is the only one\n",
                   (int)MIN_OF(option.len, (size_t)100), option.p);
}

/* Refuses bare ids with several workers: a bare id names no worker, so all its sessions must be in
 * one. */
static void check_bare_ids(const struct config *c, struct buf *mistakes)
{
    if (c->session_ids != SESSION_IDS_BARE)
        return;
    if (c->workers != 1)
        buf_puts(mistakes, "--session-ids: \"bare\" needs --workers=1");
    else if (c->peer.n > 0 || c->worker_base > 0 || c->upstream.n > 0)
        buf_puts(mistakes, "--session-ids: \"bare\" excludes --peer, --worker-base and --upstream");
    else
        return;
    buf_puts(mistakes, c->compat == COMPAT_MILES
                           ? ", or set --session-ids=routed (--compat=miles sets bare)\n"
                           : "\n");
}

/* Only the node that has a file could serve it, and that node may be lost. */
static void raise_inline_max(const struct config_load *l)
{
    const struct config_row *row = config_row_find(STR("sink-inline-max"));

    if (l->config->fleet && l->source[row - config_rows] == CONFIG_FROM_DEFAULT)
        l->config->sink_inline_max = CONFIG_FLEET_INLINE;
}

struct config *config_load_rest(int argc, char *const *argv, struct buf *mistakes)
{
    struct config_load l = {.mistakes = mistakes};
    const char *file = find_file(argc, argv);

    l.config = mem_zalloc(sizeof(*l.config));
    l.config->argc = argc;
    l.config->argv = argv;
    l.source = mem_calloc(config_n_rows, sizeof(*l.source));
    load_defaults(&l);
    if (file && *file)
        config_read_yaml(&l, file);
    load_environment(&l);
    load_flags(&l, argc, argv);
    compat_apply(&l);
    raise_inline_max(&l);
    check_bare_ids(l.config, mistakes);
    split_listen(l.config, mistakes);
    l.config->worker_base_given =
        l.source[config_row_find(STR("worker-base")) - config_rows] != CONFIG_FROM_DEFAULT;
    resolve(l.config);
    config_resolve_paths(&l);
    free(l.source);
    return l.config;
}

struct config *config_load(int argc, char *const *argv, struct buf *mistakes)
{
    size_t before = mistakes->len;
    struct config *c = config_load_rest(argc, argv, mistakes);

    if (mistakes->len == before)
        return c;
    config_free(c);
    return NULL;
}

void config_reload(struct config *live)
{
    struct buf mistakes = {0};
    struct config *fresh = config_load_again(live, &mistakes);

    if (fresh)
        config_apply(live, fresh);
    config_free(fresh);
    buf_done(&mistakes);
}

void config_unreloadable(const struct config *old, const struct config *fresh, struct buf *names)
{
    struct buf a = {0}, b = {0};

    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];

        if (!row->flag || row->live || row->offset == offsetof(struct config, config_file))
            continue;
        buf_clear(&a);
        buf_clear(&b);
        config_value_text(old, row, &a);
        config_value_text(fresh, row, &b);
        if (!str_eq(buf_str(&a), buf_str(&b)))
            buf_printf(names, "%s%s", names->len ? ", " : "", row->flag);
    }
    buf_done(&a);
    buf_done(&b);
}

struct config *config_load_again(const struct config *c, struct buf *mistakes)
{
    return config_load(c->argc, c->argv, mistakes);
}

/* Moves a replaced string to the list of replaced strings, so that it stays readable. */
static void keep(struct config *live, char *text)
{
    struct config_list *old = &live->replaced;

    if (!text)
        return;
    old->at = mem_realloc_array(old->at, old->n + 1, sizeof(*old->at));
    old->at[old->n++] = text;
}

/* Replaces a whole list. */
static void apply_list(struct config *live, struct config_list *to, const struct config_list *from)
{
    for (size_t i = 0; i < to->n; i++)
        keep(live, to->at[i]);
    keep(live, (char *)to->at);
    to->at = mem_calloc(MAX_OF(from->n, 1), sizeof(*to->at));
    for (size_t i = 0; i < from->n; i++)
        to->at[i] = mem_strdup(from->at[i]);
    to->n = from->n;
}

void config_apply(struct config *live, const struct config *fresh)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        void *to = (char *)live + row->offset;
        const void *from = (const char *)fresh + row->offset;

        if (!row->flag || !row->live)
            continue;
        if (row->type == CONFIG_LIST) {
            apply_list(live, to, from);
        } else if (row->type == CONFIG_STRING || row->type == CONFIG_PATH) {
            const char *text = *(char *const *)from;

            keep(live, *(char **)to);
            *(char **)to = text ? mem_strdup(text) : NULL;
        } else if (row->type == CONFIG_BOOL) {
            *(bool *)to = *(const bool *)from;
        } else if (row->type == CONFIG_ENUM) {
            *(int *)to = *(const int *)from;
        } else {
            *(int64_t *)to = *(const int64_t *)from;
        }
    }
}
