/*
 * Reads the purpose and the speaker of a model call from the label of its request: NAME, PURPOSE,
 * or NAME:PURPOSE (a sub-agent's own compaction). Has the table of purposes in the spelling of
 * agents. The dialects know which headers contain the label (request_fields.c). Pure.
 */
#ifndef RG_REQUEST_PURPOSE_H
#define RG_REQUEST_PURPOSE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum purpose {
    PURPOSE_MAIN,       /* the request has no label */
    PURPOSE_SUB_AGENT,  /* call of an agent that a different agent began */
    PURPOSE_COMPACTION, /* shortens a long history */
    PURPOSE_TITLE,      /* names the conversation */
    PURPOSE_MEMORY,     /* writes notes for later sessions */
    PURPOSE_REVIEW,     /* reviews finished work */
    PURPOSE_COUNT
};

enum purpose purpose_of(struct str label);

/* Returns the speaker: "main", or the name of a sub-agent. Borrowed from the label. */
struct str role_of(struct str label);

/* Returns "main", "sub_agent", "compaction", "title", "memory" or "review". */
const char *purpose_name(enum purpose p);

/* Reads a list of names, separated by commas, as bits 1 << purpose. Returns -1 with ERR_INVALID;
 * param is `field`. */
int purposes_read(struct str list, const char *field, unsigned *ret, struct err *e);

/* Checks a list of roles (role_of), separated by commas. Returns -1 with ERR_INVALID if a name is
 * empty; param is `field`. */
int roles_check(struct str list, const char *field, struct err *e);

/* Reports whether the label's role is in the list. An absent list contains all roles. */
bool roles_have(struct str list, struct str label);

#endif
