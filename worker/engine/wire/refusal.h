/*
 * Errors that an engine itself reports, by HTTP status or inside its answer: what a client gets of
 * them, and whether a further attempt is useful. Pure.
 */
#ifndef RG_WIRE_REFUSAL_H
#define RG_WIRE_REFUSAL_H

#include "common/base/arena.h"
#include "worker/engine/pool/adapter.h"

/* Fills e. The client's own mistakes (4xx) keep their status. Errors between gateway and engine
 * (keys, paths) and failures of the engine become 502 or 503 without the engine's text, which may
 * contain exceptions and paths. */
enum engine_failure refusal_of(int64_t status, struct str text, struct err *e);

/* Returns the message in an error's body, whatever its form; the bytes themselves if there is
 * none. */
struct str refusal_text(struct arena *a, struct str body);

#endif
