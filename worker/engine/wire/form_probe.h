/*
 * What a server's answers have is seen by an answer. Of one that is likely to leave fields out
 * (engine_facts.rust_front) a token is asked for when it is first seen, so that what is missing is
 * told (remote_note_answer) before a session meets it.
 */
#ifndef RG_WIRE_FORM_PROBE_H
#define RG_WIRE_FORM_PROBE_H

struct form_probe;
struct remote;

/* Asks, unless an answer is awaited: r->form. A failure is in the log; nobody else is told. */
void form_probe_begin(struct remote *r);

/* Gives it up; r->form is NULL then. */
void form_probe_cancel(struct remote *r);

#endif
