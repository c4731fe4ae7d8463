/*
 * struct info_reading: what an engine tells of itself (wire->info) is read; a long text, as of a
 * server with many ranks, by a helper.
 */
#ifndef RG_WIRE_INFO_READING_H
#define RG_WIRE_INFO_READING_H

#include "common/base/buf.h"

struct info_reading;
struct remote;

/* Takes the text over, which becomes r->facts if it is JSON; then `done`, maybe at once. One at a
 * time: r->info_reading is there until then, where a helper reads it. */
void info_reading_begin(struct remote *r, struct buf *text, void (*done)(struct remote *r));

/* The replica goes: it is given up. NULL is fine. */
void info_reading_drop(struct info_reading *i);

#endif
