/*
 * What the samples of miles and slime have in common: the response as text, how it ended, the
 * weights that sampled it, and what was in the cache.
 */
#ifndef RG_EXPORT_SAMPLE_PARTS_H
#define RG_EXPORT_SAMPLE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

struct checkpoint;
struct detok;
struct export;
struct json_out;
struct session;
struct trajectory;

/* The response of the sample at hand on its way into text. Init: zero. */
struct sample_text {
    struct detok *detok; /* NULL: not begun, or no tokenizer */
    uint32_t at;
    bool begun;
};

/* For a format's `part`: appends {"response": "..." of t, a part of a long response at a time; true
 * while there is more. Afterwards the object is open, behind this member. */
bool sample_text_part(struct export *x, const struct trajectory *t, struct sample_text *s,
                      struct buf *out);

/* For a format's `drop`. NULL is fine. */
void sample_text_drop(struct sample_text *s);

/* "completed", "truncated" or "aborted". */
const char *sample_status(const struct trajectory *t);

/* Where each response token's support begins in the ids, and behind the last where they end: n + 1
 * of them, in the scratch arena. */
int32_t *sample_offsets(struct export *x, const struct trajectory *t);

/* The members weight_versions (of each turn the oldest) and prefix_cache_info. */
void sample_put_versions(const struct trajectory *t, struct json_out *o);
void sample_put_cache(const struct trajectory *t, struct json_out *o);

/* The ids of the session's newest branch on their way into text, commas between them. Init: zero.
 */
struct sample_ids {
    const struct checkpoint *of;
    int32_t *ids; /* in the scratch arena of the trajectory at hand; NULL: not read yet */
    size_t n, at;
    struct buf text; /* whoever takes it leaves it empty */
};

/* Finds the branch, when the export begins. */
void sample_ids_begin(struct session *session, struct sample_ids *s);

/* Makes a part of the text; true while there is more. All of them in one trajectory's time. */
bool sample_ids_part(struct export *x, struct sample_ids *s);

void sample_ids_drop(struct sample_ids *s);

/* The member multimodal_inputs with its raw pictures in the order of their tokens: paths of the
 * gateway, or, with `tensors`, the names of the tensors that hold them. Nothing where there are
 * none, or none are wanted. */
void sample_put_pictures(struct export *x, const struct trajectory *t, bool tensors,
                         struct json_out *o);

#endif
