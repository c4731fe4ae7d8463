/*
 * struct redis_url: the text after "redis:" in --sink:
 *   //HOST[:PORT][/DB][?NAME=VALUE&...]   or   redis://... (the whole URL)   or   unix:PATH[?...]
 * NAME: stream (default "rollgate:trajectories"), user, password_file. A password in the URL is
 * rejected, because every user can see it in the list of processes.
 */
#ifndef RG_SINK_REDIS_URL_H
#define RG_SINK_REDIS_URL_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct redis_url {
    char *host; /* NULL: `path` is set */
    uint16_t port;
    char *path;
    uint32_t db;
    char *stream, *user, *password_file; /* user and password_file may be NULL */
};

/* Parses the text. The caller frees *ret with redis_url_done. Fails with an error that names the
 * fault; then nothing needs to be freed. */
int redis_url_parse(struct str text, struct redis_url *ret, struct err *e);
/* Reads the password from its file. *ret, which the caller frees, is NULL if no file is named.
 * Fails with ERR_CONFIG. */
int redis_url_read_password(const struct redis_url *u, char **ret, struct err *e);
/* Frees the strings. Accepts a zeroed struct. */
void redis_url_done(struct redis_url *u);

#endif
