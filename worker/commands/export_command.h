/*
 * `rollgate export`: trajectories straight from a journal, without a running gateway.
 *   rollgate export DIR [--session ID] [--model DIR] [--format F] [--out DIR] [OPTION=VALUE ...]
 * DIR is a worker's folder (STATE_DIR/worker-0). Without --session every session that has an answer
 * goes out; without --out to stdout (one JSON line per session, or the one session's bytes), else
 * into files DIR/<session id>.<format>. Options are those of GET /trajectories (select=all ...).
 */
#ifndef RG_COMMANDS_EXPORT_COMMAND_H
#define RG_COMMANDS_EXPORT_COMMAND_H

/* argv[0] is "export". Returns the exit status. */
int export_command(int argc, char **argv);

#endif
