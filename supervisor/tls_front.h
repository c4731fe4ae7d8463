/*
 * nginx as a child of the gateway (serve --front nginx). Like the local executor it is not in the
 * process table. It is a separate program with our site, in RUN_DIR/nginx.
 *
 *   start     when all other processes serve; after its death again, with a growing pause, for ever
 *   SIGHUP    (or a new certificate or key) the site is written again, and nginx reads it
 *   SIGUSR2   it continues, and the next binary is its parent from then on
 *   the end   it finishes its requests while the routers drain, and is killed with the last worker
 *
 * Its functions for the supervisor are declared in supervisor_internal.h. Its output becomes lines
 * of our log ("nginx"). The gateway never opens the private key.
 */
#ifndef RG_SUPERVISOR_TLS_FRONT_H
#define RG_SUPERVISOR_TLS_FRONT_H

struct buf;
struct config;

/* Appends a line for each wrong setting of the front or of --listen ADDRESS,tls: missing files, a
 * key that others may read, an address that needs keys, no nginx. */
void tls_front_check(const struct config *c, struct buf *mistakes);

#endif
