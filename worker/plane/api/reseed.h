/*
 * Calls on sessions that are not here (--reseed).
 */
#ifndef RG_API_RESEED_H
#define RG_API_RESEED_H

struct err;
struct service_request;

/* A fresh session for a call whose own is not here, where that may be; its id goes to ret_id, which
 * has ID_TEXT_MAX bytes. -1 and e: ERR_UNKNOWN_SESSION, ERR_SESSION_ENDED, or there is no room. */
int call_reseed(struct service_request *r, char *ret_id, struct err *e);

/* Refuses what call_reseed would refuse, before anything is done. */
int call_may_reseed(const struct service_request *r, struct err *e);

#endif
