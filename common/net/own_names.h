/*
 * struct own_names: the names by which this machine is known: its host name, the first label of
 * that, this label in each search domain of resolv.conf, and the names that /etc/hosts has on a
 * line with one of these (a container's name is often there). No name server is asked.
 */
#ifndef RG_NET_OWN_NAMES_H
#define RG_NET_OWN_NAMES_H

#include <stdbool.h>

struct own_names;

/* Makes an empty set; no file is read yet. */
struct own_names *own_names_new(void);
void own_names_free(struct own_names *n); /* accepts NULL */

/* Reports whether `name` (lower case, no dot at its end) is one of them. Reads the names again when
 * the host name has changed and, at most once a second, for an unknown name. */
bool own_names_has(struct own_names *n, const char *name);

#endif
