/*
 * The form of each family's calls, for the grammars that engines enforce. The forms that parsers
 * read are in families.c.
 */
#ifndef RG_PARSERS_CALL_FORMS_H
#define RG_PARSERS_CALL_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/text/parsers/kinds.h"

enum arguments {
    ARGS_JSON,
    ARGS_TAGS,
    ARGS_PYTHON,
    ARGS_BARE /* key:value; texts between text_end[0], other values as JSON */
};

/*
 * OPEN CALL (BETWEEN CALL)* CLOSE, all in gbnf notation. In `call`, %n is the name (inside quotes)
 * and %a the arguments. In the params of ARGS_TAGS, %k is the key (inside quotes) and %v the value.
 * A family with two forms has two rows.
 */
struct call_form {
    enum tool_kind kind;
    enum arguments args;
    const char *open, *call, *between, *close;
    const char *text_param;  /* a parameter whose value is its text */
    const char *json_param;  /* a parameter of any other type; NULL: the same form */
    const char *text_end[3]; /* marks that the text of a parameter cannot contain */
    bool single;             /* the turn ends after a call */
};

extern const struct call_form call_forms[];
extern const size_t n_call_forms;

#endif
