/*
 * The executor's commands. They print to stdout, and errors to stderr. They return the exit status:
 * 0, 1 (failed), 2 (usage or configuration).
 */
#ifndef RG_RUNNER_RUNNER_H
#define RG_RUNNER_RUNNER_H

#include "common/base/buf.h"

/* `rollgate runner --runners FILE [options]`: claims attempts and runs them. */
int runner_command(int argc, char **argv);

/* `rollgate group submit|list|show|wait|cancel`: a trainer's calls from the command line. */
int group_command(int argc, char **argv);

/* Appends a line for each mistake of a runner file. */
void runner_check(const char *path, struct buf *mistakes);

#endif
