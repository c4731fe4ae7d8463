/*
 * struct splice: one answer joined from pieces, for engines that abort generations part way (for a
 * weight update) so that the rest is requested again. Ids, logprobs, alternatives and version spans
 * are concatenated. A zeroed struct is empty; `held` may be set.
 */
#ifndef RG_ENGINE_SPLICE_H
#define RG_ENGINE_SPLICE_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "worker/engine/pool/engine.h"
#include "worker/text/tokens/span.h"

struct splice_support;

struct splice_span {
    size_t text_at, text_len;
    uint32_t start, end;
};

struct splice {
    struct token_vec ids;

    struct {
        float *at;
        size_t n, cap;
    } logprobs;

    struct {
        struct engine_top *at;
        size_t n, cap;
    } tops;

    struct {
        struct splice_span *at;
        size_t n, cap;
    } spans;

    struct splice_support *support; /* NULL: no piece had a support */
    bool support_lost;              /* a piece has no support */

    struct buf text;                 /* texts of the versions */
    struct engine_version *versions; /* filled by splice_result */
    enum logprob_basis basis;
    struct buf experts; /* rows of the pieces that had them, from the call's first row on */
    uint32_t experts_from, experts_rows;
    uint32_t scored, drifted;
    bool recomputed;       /* a piece was recomputed (engine_result) */
    int64_t cached_tokens; /* cached tokens of the first piece */
    uint32_t pieces;
    atomic_size_t *held; /* counter that includes `counted` bytes of this splice; or NULL */
    size_t counted;
};

void splice_done(struct splice *s);

/* Adds a piece; r->versions may be empty. */
void splice_add(struct splice *s, const struct engine_result *r);

/* Adds the routed experts of an aborted piece (r->experts_from, r->experts_rows), which continue
 * those before. The next piece computes its tokens again, perhaps with other weights. */
void splice_add_experts(struct splice *s, const struct engine_result *r);

/* Puts the whole answer into r, borrowed from s. The other members of r are unchanged. */
void splice_result(struct splice *s, struct engine_result *r);

#endif
