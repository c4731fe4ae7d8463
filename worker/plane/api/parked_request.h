/*
 * Requests that wait before they are dispatched: for a session that is read back from the journal
 * or the fleet's store, or for a store that does not answer. They own their parsed body meanwhile.
 * After the wait they enter again by dispatch_enter, since their key may be invalid by then. A
 * client that leaves ends the wait.
 */
#ifndef RG_API_PARKED_REQUEST_H
#define RG_API_PARKED_REQUEST_H

#include <stdbool.h>

struct err;
struct service_request;

/* Holds a request while the fleet's store cannot say who owns its session (`why`): a control
 * request for --fleet-hold, a model call for --fleet-outage, since its end would wait for the store
 * as long. Returns false for other errors, and for a request that was held before. */
bool parked_hold(struct service_request *r, bool control, const struct err *why);

/* Parks a request whose session's content is not in memory. Finalized sessions are read back only
 * for reading, exports and deletions. Returns false if the request can be served now. */
bool parked_wait_session(struct service_request *r, bool control);

#endif
