/*
 * `rollgate render`: renders chat templates.
 *   rollgate render --jsonl [--template FILE]
 *     one JSON object a line in: {"template"?, "context": {...}, "continue_final_message"?, "now"?}
 *     one out, same order: {"text": ...} or {"error": KIND, "message": TEXT, "line": N}
 *   rollgate render --template FILE [--now ISO]    the context as JSON on stdin, the text on stdout
 * A template in the line wins over the file. `now` is YYYY-MM-DDTHH:MM:SS for strftime_now.
 */
#ifndef RG_COMMANDS_RENDER_COMMAND_H
#define RG_COMMANDS_RENDER_COMMAND_H

/* argv[0] is "render". Returns the exit status. */
int render_command(int argc, char **argv);

#endif
