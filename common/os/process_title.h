/*
 * The command line that `ps` shows for a process. A forked child shows its parent's command line.
 * So all processes of a gateway look alike until each sets a title of its own.
 */
#ifndef RG_OS_PROCESS_TITLE_H
#define RG_OS_PROCESS_TITLE_H

/* Copies argv and the environment, so that their original memory, which the kernel shows, can be
 * overwritten. Call it once, first in main, before any pointer into argv or the environment is
 * kept. Returns the copy of argv, which lives as long as the process. */
char **process_title_begin(int argc, char **argv);

/* Shows `title`, cut to the memory that argv and the environment used at the start. Without
 * process_title_begin it does nothing. */
void process_title_set(const char *title);

/* Names the calling thread, with at most 15 bytes, for `ps -T`, `top -H` and debuggers. The name of
 * the first thread is the process's (comm). */
void process_title_name_thread(const char *name);

#endif
