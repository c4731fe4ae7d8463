/*
 * Reads the purpose and the speaker of a model call from the label of its request: NAME, PURPOSE,
 * or NAME:PURPOSE (a sub-agent's own compaction). Has the one table of purposes as agents spell
 * them. The dialects know which headers contain the label (request_fields.c). Pure.
 */
#ifndef RG_REQUEST_PURPOSE_H
#define RG_REQUEST_PURPOSE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum purpose {
    PURPOSE_MAIN,       /* no label */
    PURPOSE_SUB_AGENT,  /* an agent that another one began */
    PURPOSE_COMPACTION, /* makes a long history short */
    PURPOSE_TITLE,      /* names the conversation */
    PURPOSE_MEMORY,     /* writes down what is to be remembered */
    PURPOSE_REVIEW,     /* looks at what was done */
    PURPOSE_COUNT
};

enum purpose purpose_of(struct str label);

/* Returns the speaker: "main", or the name of a sub-agent. Borrowed from the label. */
struct str role_of(struct str label);

/* "main", "sub_agent", "compaction", "title", "memory", "review". */
const char *purpose_name(enum purpose p);

/* A list of names by commas as bits 1 << purpose. -1: ERR_INVALID, param is `field`. */
int purposes_read(struct str list, const char *field, unsigned *ret, struct err *e);

/* A list of roles (role_of) by commas. -1: ERR_INVALID, param is `field`: a name is
 * empty. */
int roles_check(struct str list, const char *field, struct err *e);

/* Whether the label's role is among them; an absent list has all. */
bool roles_have(struct str list, struct str label);

#endif
