/*
 * `rollgate doctor`: checks the machine, the settings, the model folder, the sinks, the engines,
 * and a whole call. Prints one line for each finding, with what to do about it. Checks run in this
 * order, and each adds its findings: doctor_machine.c, the settings (commands.h), the model and the
 * sinks (worker.h), doctor_gateway.c.
 */
#ifndef RG_SUPERVISOR_DOCTOR_H
#define RG_SUPERVISOR_DOCTOR_H

#include <stdbool.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"

struct config;

enum finding_level { FINDING_OK, FINDING_WARNING, FINDING_ERROR };

struct finding {
    const char *check; /* name of the check, borrowed */
    enum finding_level level;
    char *text, *cure; /* owned; cure NULL: there is nothing to do */
};

struct doctor {
    const struct config *config;
    int argc; /* settings for a gateway of its own, in argv[1..] */
    char **argv;
    VEC(struct finding) findings;
};

/* Adds a finding. `cure`, which is copied, says what to do about a warning or an error. */
void doctor_add(struct doctor *d, const char *check, enum finding_level level, const char *cure,
                const char *format, ...) RG_PRINTF(5, 6);

/* Prints the findings, as lines or JSON, and frees them. Returns 1 if one is an error, else 0. */
int doctor_report(struct doctor *d, bool json);

/* Checks limits, descriptors, processors, memory, disk, port and kernel. */
void doctor_check_machine(struct doctor *d);

/* Checks the engines, and makes one call that is captured and exported. Uses the gateway that runs
 * at --listen. Otherwise starts one with folders of its own. */
void doctor_check_gateway(struct doctor *d);

/* Runs the command. Returns the exit status: 0, 1 (an error was found) or 2 (usage). */
int doctor_command(int argc, char **argv);

#endif
