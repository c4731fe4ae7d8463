/* An export's next slice: so many bytes or so much time, whichever is first, so that everybody else
 * on the loop has a turn before the next one. */
#ifndef RG_EXPORT_SLICE_H
#define RG_EXPORT_SLICE_H

struct buf;
struct err;
struct export;

/* Appends to `out` (maybe nothing): as export_next. It ends early where export_work is to come. */
int export_slice(struct export *x, struct buf *out, struct err *e);

#endif
