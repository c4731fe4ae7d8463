/*
 * The pictures of a snapshot on their way out: the members `media` (each picture once: its SHA-256
 * and its bytes, read piece by piece and held against that) and `media_urls` (which of them the
 * session has had from a URL, by the URL's SHA-256).
 */
#ifndef RG_CONTROL_SNAPSHOT_PICTURES_H
#define RG_CONTROL_SNAPSHOT_PICTURES_H

struct buf;
struct err;
struct media_store;
struct session;
struct snapshot_pictures;

/* Lists the pictures that the session's messages show now; NULL: none. `s`, which the caller pins,
 * and the store outlive the list. */
struct snapshot_pictures *snapshot_pictures_new(const struct media_store *store,
                                                const struct session *s);

/* Frees the list; accepts NULL. */
void snapshot_pictures_free(struct snapshot_pictures *p);

/* Appends the next piece of both members, a comma in front of each. 1: that was all. -1: a picture
 * is gone, or has changed on the disk. */
int snapshot_pictures_next(struct snapshot_pictures *p, struct buf *out, struct err *e);

#endif
