/*
 * Why a call stands where it stands: the cause, and for forks the message index, the field and
 * both texts from shortly before the first difference. Pure looking.
 */
#ifndef RG_SESSION_CAUSE_H
#define RG_SESSION_CAUSE_H

struct plan;
struct session;

/* Why a call stands where it stands (spec sessions 5.1); names in session_cause_name(). */
enum session_cause {
    CAUSE_EXTENDED,
    CAUSE_NEW_ROOT,
    CAUSE_HISTORY_REWRITTEN,
    CAUSE_RESAMPLED,
    CAUSE_SAME_ANSWER,
    CAUSE_ASSISTANT_REWRITTEN,
    CAUSE_TOOLS_CHANGED,
    CAUSE_KWARGS_CHANGED,
    CAUSE_TEMPLATE_REWRITE,
    CAUSE_TRUNCATED,
    CAUSE_COUNT
};

const char *session_cause_name(enum session_cause c);

/* Fills cause, diff_* of a plan whose walk and position are known. */
void cause_find(struct session *s, struct plan *p);

#endif
