/*
 * `rollgate export`: exports trajectories from a journal, without a running gateway.
 *   rollgate export DIR [--session ID] [--model DIR] [--format F] [--out DIR] [OPTION=VALUE ...]
 * DIR is a worker's folder (STATE_DIR/worker-0). Without --session, every session that has an
 * answer is exported. Without --out, the output goes to stdout: one JSON line per session, or one
 * session's bytes. With --out, it goes to files DIR/<session id>.<format>. OPTIONs are those of GET
 * /trajectories (select=all ...).
 */
#ifndef RG_COMMANDS_EXPORT_COMMAND_H
#define RG_COMMANDS_EXPORT_COMMAND_H

/* Runs the command; argv[0] is "export". Returns the exit status: 0, 1 (a session failed) or 2
 * (usage). */
int export_command(int argc, char **argv);

#endif
