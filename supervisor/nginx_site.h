/*
 * struct nginx_site: what makes the nginx site (TLS, HTTP/2) of a gateway and its --peer nodes, for
 * `rollgate nginx-config` and for serve --front nginx.
 */
#ifndef RG_SUPERVISOR_NGINX_SITE_H
#define RG_SUPERVISOR_NGINX_SITE_H

#include <stdbool.h>

struct buf;
struct config;

struct nginx_site {
    const char *name, *certificate, *key; /* borrowed, as all */
    const char *listen;                   /* address of the site: PORT or ADDRESS:PORT */
    const char *node;                     /* address of this node's gateway */
};

/* Whether the text is one word that nginx reads as it is. */
bool nginx_site_is_value(const char *text);

/* Reports settings of the site that would mean something else to nginx. */
void nginx_site_check(const struct config *c, struct buf *mistakes);

/* Appends maps, upstreams and server, for inside of http { }. */
void nginx_site_add(const struct config *c, const struct nginx_site *site, struct buf *out);

#endif
