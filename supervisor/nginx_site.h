/*
 * struct nginx_site: values for the nginx site (TLS, HTTP/2) of a gateway and its --peer nodes, for
 * `rollgate nginx-config` and for serve --front nginx.
 */
#ifndef RG_SUPERVISOR_NGINX_SITE_H
#define RG_SUPERVISOR_NGINX_SITE_H

#include <stdbool.h>

struct buf;
struct config;

struct nginx_site {
    const char *name, *certificate, *key; /* all strings are borrowed */
    const char *listen;                   /* address of the site: PORT or ADDRESS:PORT */
    const char *node;                     /* address of this node's gateway */
    const char *nodes; /* addresses of a fleet's nodes, separated by commas; NULL: this one */
};

/* Reports whether nginx reads the text as one plain word. */
bool nginx_site_is_value(const char *text);

/* Appends a line for each setting that would mean something else in nginx's syntax. */
void nginx_site_check(const struct config *c, struct buf *mistakes);

/* Appends maps, upstreams and server, to be placed in http { }. */
void nginx_site_add(const struct config *c, const struct nginx_site *site, struct buf *out);

#endif
