/*
 * Paths below a session that no dialect serves. If they are an engine's own and the caller may use
 * them (worker/engine/pool/doors.h), the request goes to the session's engine unchanged, and its
 * answer comes back unchanged. Nothing is recorded or retried. The request has the engine's own
 * key, never the agent's. Answers with 200 are relayed with backpressure, others are held whole
 * (with a limit).
 */
#ifndef RG_API_PASSTHROUGH_H
#define RG_API_PASSTHROUGH_H

struct service_request;

/* Forwards the request (r->rest and its query) to the session's engine, or refuses it. */
void passthrough_serve(struct service_request *r);

#endif
