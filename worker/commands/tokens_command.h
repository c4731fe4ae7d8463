/*
 * The commands `rollgate tokenize` and `rollgate detokenize`.
 *   tokenize   --jsonl --tokenizer FILE    {"text", "add_special_tokens"?} -> {"ids": [...]}
 *   detokenize --jsonl --tokenizer FILE    {"ids", "skip_special_tokens"?} -> {"text"}
 *   tokenize   --tokenizer FILE [--special] < text       prints ids separated by blanks
 *   detokenize --tokenizer FILE [--skip-special] < ids   prints the text
 * --model DIR means DIR/tokenizer.json. With neither option, the built-in byte tokenizer is used.
 * --jsonl reads and writes one object per line, in the same order. A line that fails has the output
 * {"error": code, "message": text}.
 */
#ifndef RG_COMMANDS_TOKENS_COMMAND_H
#define RG_COMMANDS_TOKENS_COMMAND_H

/* Run the commands; argv[0] is the command's name. Return the exit status: 0, 1 (a tokenizer or a
 * line failed) or 2 (usage). */
int tokenize_command(int argc, char **argv);
int detokenize_command(int argc, char **argv);

#endif
