/*
 * `rollgate session show ID`: the conversation of a session, with its tokens coloured by logprob or
 * by the difference to the trainer's, and its drift.
 */
#ifndef RG_SUPERVISOR_SESSION_COMMAND_H
#define RG_SUPERVISOR_SESSION_COMMAND_H

/* Returns the exit status: 0, 1 (no such session, or no gateway), 2 (usage). */
int session_command(int argc, char **argv);

#endif
