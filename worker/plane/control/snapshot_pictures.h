/*
 * Writes the pictures of a snapshot: the members `media` (each picture once: its SHA-256 and its
 * bytes, which are read piece by piece and checked against the hash) and `media_urls` (which
 * pictures the session got from a URL, by the URL's SHA-256).
 */
#ifndef RG_CONTROL_SNAPSHOT_PICTURES_H
#define RG_CONTROL_SNAPSHOT_PICTURES_H

#include "common/base/attrs.h"

struct answering;
struct err;
struct media_store;
struct session;
struct snapshot_pictures;

/* Lists the pictures that the session's messages show now. Returns NULL if there are none. `s`,
 * which the caller pins, and the store must outlive the list. */
struct snapshot_pictures *snapshot_pictures_new(const struct media_store *store,
                                                const struct session *s);

/* Frees the list. Accepts NULL. */
void snapshot_pictures_free(struct snapshot_pictures *p);

/* Writes both members, a comma in front of each. -1: a picture is gone, or has changed on the disk.
 */
MAY_PAUSE RG_MUSTCHECK int snapshot_pictures_write(const struct snapshot_pictures *p,
                                                   struct answering *a, struct err *e);

#endif
