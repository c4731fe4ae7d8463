/*
 * struct form_probe: test calls to a server that answers 200 to fields that it does not know: the
 * Rust fronts of SGLang and vLLM. Each is an ordinary call. Fields that their answers lack, or that
 * they do not obey, are in the replica's `lacks` before a session uses it.
 */
#ifndef RG_WIRE_FORM_PROBE_H
#define RG_WIRE_FORM_PROBE_H

struct remote;

/* Begins with the first call, unless r->form exists. It asks for all data that answers may have. If
 * the server reports that it is such a front (engine_facts.says_rust), calls follow that show which
 * fields it obeys. A failure is logged, and ends the probe. */
void form_probe_begin(struct remote *r);

/* Cancels the probe and sets r->form to NULL. */
void form_probe_cancel(struct remote *r);

#endif
