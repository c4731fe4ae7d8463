/*
 * `rollgate top [--once] [settings]`: a live view of a running gateway in the terminal, made from
 * its /metrics (with an admin key if --admin-key-file is set). Rates are per second since the last
 * reading. --once prints one page and ends.
 */
#ifndef RG_SUPERVISOR_TOP_H
#define RG_SUPERVISOR_TOP_H

/* Returns the exit status: 0, 1 (no gateway answers), 2 (usage). */
int top_command(int argc, char **argv);

#endif
