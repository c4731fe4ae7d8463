/*
 * Calls on sessions that do not exist here (--reseed).
 */
#ifndef RG_API_RESEED_H
#define RG_API_RESEED_H

struct err;
struct service_request;

/* Makes a fresh session for a call whose own does not exist here, if that is allowed. ret_id gets
 * its id and has ID_TEXT_MAX bytes. Returns -1 and e: ERR_UNKNOWN_SESSION, ERR_SESSION_ENDED, or no
 * capacity. */
int call_reseed(struct service_request *r, char *ret_id, struct err *e);

/* Refuses what call_reseed would refuse, before anything is done. */
int call_may_reseed(const struct service_request *r, struct err *e);

#endif
