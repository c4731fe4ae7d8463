/*
 * Paths below a session that no dialect serves: those of the engine's own that are open to the
 * caller (worker/engine/pool/doors.h) go to the session's engine as they are and its answer comes
 * back as it is; nothing is recorded, nothing retried. Only the engine's own key goes along, never
 * the agent's. Answers are relayed with backpressure when they are 200, else held whole (bounded).
 */
#ifndef RG_API_PASSTHROUGH_H
#define RG_API_PASSTHROUGH_H

struct service_request;

/* Forwards the request (r->rest and its query) to the session's engine, or refuses it. */
void passthrough_serve(struct service_request *r);

#endif
