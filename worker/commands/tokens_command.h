/*
 * The commands `rollgate tokenize` and `rollgate detokenize`.
 *     rollgate tokenize   --jsonl --tokenizer FILE   {"text", "add_special_tokens"?} -> {"ids":
 * [...]} rollgate detokenize --jsonl --tokenizer FILE   {"ids", "skip_special_tokens"?} -> {"text"}
 *     rollgate tokenize   --tokenizer FILE [--special] < text      ids, blank-separated
 *     rollgate detokenize --tokenizer FILE [--skip-special] < ids  text
 * --model DIR stands for DIR/tokenizer.json; neither: the built-in byte tokenizer.
 * With --jsonl one object a line in, one out, same order; a line that fails gives
 * {"error": code, "message": text}.
 */
#ifndef RG_COMMANDS_TOKENS_COMMAND_H
#define RG_COMMANDS_TOKENS_COMMAND_H

/* argv[0] is the command's name. Returns the exit status: 0, 1 (a tokenizer or line failed),
 * 2 (usage). */
int tokenize_command(int argc, char **argv);
int detokenize_command(int argc, char **argv);

#endif
