/*
 * `rollgate render`: renders chat templates.
 *   rollgate render --jsonl [--template FILE]
 *     reads one JSON object per line:
 *       {"template"?, "context": {...}, "continue_final_message"?, "now"?}
 *     writes one per line, in the same order:
 *       {"text": ...} or {"error": KIND, "message": TEXT, "line": N}
 *   rollgate render --template FILE [--now ISO]    reads the context as JSON, and prints the text
 * A template in the line takes precedence over the file. `now` (YYYY-MM-DDTHH:MM:SS) is the time of
 * strftime_now.
 */
#ifndef RG_COMMANDS_RENDER_COMMAND_H
#define RG_COMMANDS_RENDER_COMMAND_H

/* Runs the command; argv[0] is "render". Returns the exit status: 0, 1 (failed) or 2 (usage). */
int render_command(int argc, char **argv);

#endif
