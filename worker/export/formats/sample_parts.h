/*
 * Members that the samples of miles and slime both have: the response as text, how it ended, the
 * weights that sampled it, and what was in the cache.
 */
#ifndef RG_EXPORT_SAMPLE_PARTS_H
#define RG_EXPORT_SAMPLE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"

struct checkpoint;
struct export;
struct json_out;
struct session;
struct trajectory;

/* Writes the member `response`: the sampled text, without the tokens of images. */
MAY_PAUSE void sample_put_response(struct export *x, const struct trajectory *t,
                                   struct json_out *o);

/* Returns "completed", "truncated" or "aborted". */
const char *sample_status(const struct trajectory *t);

/* Returns where each response token's support begins in the ids, and the end of the last: n + 1
 * numbers, in the scratch arena. */
int32_t *sample_offsets(struct export *x, const struct trajectory *t);

/* Write the members weight_versions (the oldest of each turn) and prefix_cache_info. */
void sample_put_versions(const struct trajectory *t, struct json_out *o);
void sample_put_cache(const struct trajectory *t, struct json_out *o);

/* The session's newest branch when the export began. */
struct sample_ids {
    const struct checkpoint *of; /* last checkpoint of the branch */
    size_t n;                    /* number of tokens */
};

void sample_ids_begin(struct session *session, struct sample_ids *s);

/* Writes its ids as text, separated by commas. Uses the scratch arena. */
MAY_PAUSE void sample_put_ids(struct export *x, const struct sample_ids *s, struct buf *out);

/* Writes the member multimodal_inputs with raw pictures in the order of their tokens: paths of the
 * gateway, or, with `tensors`, the names of the tensors that have them. Writes nothing if there are
 * none, or if none are wanted. */
void sample_put_pictures(struct export *x, const struct trajectory *t, bool tensors,
                         struct json_out *o);

#endif
