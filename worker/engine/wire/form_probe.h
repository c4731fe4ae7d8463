/*
 * struct form_probe: questions to a server that answers 200 to fields that it does not know: the
 * Rust fronts of SGLang and vLLM. Each is a call like any other. What their answers do not have, or
 * do not obey, is in the replica's `lacks` before a session meets it.
 */
#ifndef RG_WIRE_FORM_PROBE_H
#define RG_WIRE_FORM_PROBE_H

struct form_probe;
struct remote;

/* Begins with the first question, unless r->form is there: what an answer has. If the server says
 * that it is such a front (engine_facts.says_rust), all that answers may have is asked for, and
 * questions follow that show what it obeys. A failure is in the log, and ends them. */
void form_probe_begin(struct remote *r);

/* Cancels it. r->form is NULL then. */
void form_probe_cancel(struct remote *r);

#endif
