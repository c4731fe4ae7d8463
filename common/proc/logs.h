/*
 * Sets up the log of one process from the settings: level, format, and how many lines of one kind
 * are written in a second. Suppressed lines are counted.
 */
#ifndef RG_PROC_LOGS_H
#define RG_PROC_LOGS_H

struct config;
struct metrics_page;

/* Sets up the log at the start and after a reload. role is borrowed; page may be NULL. */
void logs_setup(const char *role, const struct config *c, struct metrics_page *page);

#endif
