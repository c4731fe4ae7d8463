/*
 * Commands of the binary that need no gateway. argv[0] is the command's name. Each returns the exit
 * status: 0, 1 (failed), 2 (usage).
 */
#ifndef RG_COMMANDS_OFFLINE_COMMANDS_H
#define RG_COMMANDS_OFFLINE_COMMANDS_H

/* `rollgate backup STATE_DIR NEW_DIR`: copies a state folder while a gateway may use it. The copy
 * contains every turn that was answered before the command started. If it fails, NEW_DIR does not
 * exist. */
int backup_command(int argc, char **argv);

/* `rollgate check DIR`: loads a model folder and reports its contents, unsupported features, and
 * how turns are separated. Exit status 0: the model can be served; 1: it cannot, with the reason.
 *   rollgate check [DIR] [--chat-template FILE] [--tool-parser NAME] [--reasoning-parser NAME]
 *                  [--tito-family NAME] [--context-length N]
 * Without DIR: the built-in model. */
int check_command(int argc, char **argv);

/* `rollgate export`: exports trajectories from a journal, without a running gateway.
 *   rollgate export DIR [--session ID] [--model DIR] [--format F] [--out DIR] [OPTION=VALUE ...]
 * DIR is a worker's folder (STATE_DIR/worker-0). Without --session, every session that has an
 * answer is exported. Without --out, the output goes to stdout: one JSON line per session, or one
 * session's bytes. With --out, it goes to files DIR/<session id>.<format>. OPTIONs are those of GET
 * /trajectories (select=all ...). */
int export_command(int argc, char **argv);

/* `rollgate journal`: inspects and cleans up the journal of a worker that is not running.
 *   rollgate journal check DIR...    checks every record; exit 1 on damage or a torn tail
 *   rollgate journal dump DIR...     prints one JSON line per record
 *   rollgate journal compact DIR [--tombstone-ttl D] [--export-retention D]
 *                                    removes records that no session or tombstone needs
 *   rollgate journal repair DIR      leaves out damaged or missing records, and keeps the old files
 * DIR is a worker's folder (STATE_DIR/worker-0). check and dump also accept a state folder. */
int journal_command(int argc, char **argv);

/* `rollgate render`: renders chat templates.
 *   rollgate render --jsonl [--template FILE]
 *     reads one JSON object per line:
 *       {"template"?, "context": {...}, "continue_final_message"?, "now"?}
 *     writes one per line, in the same order:
 *       {"text": ...} or {"error": KIND, "message": TEXT, "line": N}
 *   rollgate render --template FILE [--now ISO]    reads the context as JSON, and prints the text
 * A template in the line takes precedence over the file. `now` (YYYY-MM-DDTHH:MM:SS) is the time of
 * strftime_now. */
int render_command(int argc, char **argv);

/* The commands `rollgate tokenize` and `rollgate detokenize`.
 *   tokenize   --jsonl --tokenizer FILE    {"text", "add_special_tokens"?} -> {"ids": [...]}
 *   detokenize --jsonl --tokenizer FILE    {"ids", "skip_special_tokens"?} -> {"text"}
 *   tokenize   --tokenizer FILE [--special] < text       prints ids separated by blanks
 *   detokenize --tokenizer FILE [--skip-special] < ids   prints the text
 * --model DIR means DIR/tokenizer.json. With neither option, the built-in byte tokenizer is used.
 * --jsonl reads and writes one object per line, in the same order. A line that fails has the output
 * {"error": code, "message": text}. Return 1 if a tokenizer or a line failed. */
int tokenize_command(int argc, char **argv);
int detokenize_command(int argc, char **argv);

#endif
