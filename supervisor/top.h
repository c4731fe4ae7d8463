/*
 * `rollgate top [--once] [settings]`: a live view of a running gateway in the terminal, made from
 * its /metrics (an admin key from --admin-key-file goes along when there is one). Rates are per
 * second since the last look. --once prints one page and ends.
 */
#ifndef RG_SUPERVISOR_TOP_H
#define RG_SUPERVISOR_TOP_H

/* Returns the exit status: 0, 1 (no gateway answers), 2 (usage). */
int top_command(int argc, char **argv);

#endif
