/*
 * Pythonic strings with unescaped quotes of their own kind: command='sed -n '1,9p' f'. Coding
 * agents write them. The whole rest of the block decides which quote closes such a string.
 */
#ifndef RG_PARSERS_PYTHON_QUOTE_H
#define RG_PARSERS_PYTHON_QUOTE_H

#include "worker/text/parsers/core.h"

/* Position in the parameters: struct tool_call's `field`. */
enum { IN_KEY, BEHIND_KEY, IN_VALUE, BEHIND_VALUE };

/* True if the byte may be part of a function's or a parameter's name. */
bool python_name_byte(char c);

/* Reads one byte of the call's parameters. DONE: it was the parenthesis that closes them. */
enum python_step python_params_byte(struct tool_call *c, char byte);

/* Decides whether a quote at pos closes the present string. YES: it does. NO: it is text, and
 * p->call.closer is the quote that closes; 0: none closes, or several could. MORE: the deciding
 * bytes have not arrived. */
enum step python_quote_closes(struct parser *p);

#endif
