/*
 * The log of one process as the settings want it: level, format, and how many lines of one kind go
 * out in a second; what does not is counted.
 */
#ifndef RG_PROC_LOGS_H
#define RG_PROC_LOGS_H

struct config;
struct metrics_page;

/* role is borrowed; page may be NULL. At the start and after a reload. */
void logs_setup(const char *role, const struct config *c, struct metrics_page *page);

#endif
