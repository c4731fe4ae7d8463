/*
 * struct vision_probe: checks once whether an engine makes the same tokens of a prompt with
 * pictures as the model's processor. When the engine is first up, it is asked for one token of a
 * prompt with a PNG, a JPEG and ids that no tokenizer writes next to each other. An engine that
 * decodes the ids and encodes them again reports a shorter prompt.
 */
#ifndef RG_ENGINE_VISION_PROBE_H
#define RG_ENGINE_VISION_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_request.h"

struct arena;
struct model;
struct replica;
struct sampling;

/* VISION_UNPROVEN: not asked yet, or the answer did not show it. */
enum vision_state { VISION_UNPROVEN, VISION_EXACT, VISION_DRIFTS, VISION_NONE };

/* The prompt of the probe. n_images 0: the model accepts text only. */
struct vision_sample {
    struct token_span prompt;
    struct engine_image images[2];
    size_t n_images;
    int32_t pad;
    const struct sampling *sampling; /* parameters for sampling one token */
};

/* Makes the prompt for the model, in the arena. */
void vision_sample_make(const struct model *m, struct arena *a, struct vision_sample *ret);

/* A pending probe of a replica. */
struct vision_probe {
    enum vision_state state;
    struct engine_request req;
    void *attempt; /* NULL: no probe is pending */
};

/* Starts the probe of a replica if it is due. */
void vision_probe_begin(struct replica *r);

/* Reports whether pictures may be sent to it: its kind accepts them, and the probe has not
 * failed. */
bool vision_probe_lets(const struct replica *r);

/* Reports whether it is known to make exactly the right tokens. Kinds without health probes are in
 * this process, so they do. */
bool vision_probe_proven(const struct replica *r);

/* Returns "exact", "drifts" or "none"; NULL: unknown, or the model accepts text only. */
const char *vision_probe_told(const struct replica *r);

/* Forgets the result when the replica goes down, because a different server may come up. */
void vision_probe_forget(struct replica *r);

#endif
