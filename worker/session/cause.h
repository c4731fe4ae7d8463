/*
 * Why a call stands where it stands: finds the cause (enum session_cause), and for forks the
 * message index, the field and both texts from shortly before the first difference. Pure looking.
 */
#ifndef RG_SESSION_CAUSE_H
#define RG_SESSION_CAUSE_H

struct plan;
struct session;

/* Fills cause, diff_* of a plan whose walk and position are known. */
void cause_find(struct session *s, struct plan *p);

#endif
