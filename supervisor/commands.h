/*
 * The commands of the binary that are neither a process's main nor an executor's tool. Results are
 * printed to stdout, mistakes to stderr. Each gets the command's own arguments (argv[0] is its
 * name) and returns the exit status: 0, 1 (failed), 2 (usage or configuration).
 */
#ifndef RG_SUPERVISOR_COMMANDS_H
#define RG_SUPERVISOR_COMMANDS_H

struct buf;
struct config;

/* `rollgate serve`: supervisor, workers and routers of this node. */
int serve_command(int argc, char **argv);

/* `rollgate route`: only routers, in front of given --upstream addresses. */
int route_command(int argc, char **argv);

/* Runs `rollgate config --check|--dump|--docs|--limits|--man [settings]`. */
int config_command(int argc, char **argv);

/* Runs `rollgate nginx-config [--server-name NAME] [--certificate FILE] [--certificate-key FILE]
 * [settings]`: prints an nginx site for this gateway and its --peer nodes. */
int nginx_command(int argc, char **argv);

/* `rollgate key executor NAME [settings]`: prints the executor's key. */
int key_command(int argc, char **argv);

/* Runs `rollgate fleet check URL [--json]`, which reports whether a server can be the store of a
 * fleet, or `rollgate fleet status [options]`, which prints the nodes. */
int fleet_command(int argc, char **argv);

/* Runs `rollgate support DIR|FILE.tar [--log FILE] [settings]`: writes a bundle of facts for
 * support. */
int support_command(int argc, char **argv);

/* `rollgate top [--once] [settings]`: a live view of a running gateway in the terminal, made from
 * its /metrics (with an admin key if --admin-key-file is set). Rates are per second since the last
 * reading. --once prints one page and ends. Returns the exit status: 0, 1 (no gateway answers), 2
 * (usage). */
int top_command(int argc, char **argv);

/* `rollgate session show ID`: the conversation of a session, with its tokens coloured by logprob or
 * by the difference to the trainer's, and its drift. Returns the exit status: 0, 1 (no such
 * session, or no gateway), 2 (usage). */
int session_command(int argc, char **argv);

/* `rollgate watch [ID]`: prints the events of the gateway (or of one session) as lines, until the
 * stream ends. Returns the exit status: 0 (the gateway ended the stream), 1 (no gateway, or it
 * refused), 2 (usage). */
int watch_command(int argc, char **argv);

/* How much of the settings commands_load checks. It prints every mistake to stderr, and then
 * returns NULL. */
enum commands_care {
    COMMANDS_SYNTAX, /* only names and values */
    COMMANDS_SITE,   /* also our addresses and those of our peers */
    COMMANDS_VALUES, /* also what they refer to: addresses, files, names */
    COMMANDS_ROUTE,  /* like VALUES, and there must be upstreams */
    COMMANDS_MODEL,  /* like VALUES, and the model is loaded as a test */
};

struct config *commands_load(int argc, char **argv, enum commands_care care);

/* Appends a line to `mistakes` for each wrong setting, and to `warnings` for each without effect.
 */
void commands_check(const struct config *c, enum commands_care care, struct buf *mistakes,
                    struct buf *warnings);

/* Loads the settings of a command that also has other arguments, in any order. config.args has
 * these. */
struct config *commands_load_words(int argc, char **argv, enum commands_care care);

#endif
