/*
 * Whether an engine makes of a prompt with pictures what the model's processor makes of it: asked
 * once, when it is first seen well, with a PNG, a JPEG and ids that no tokenizer writes side by
 * side, for one token. An engine that decodes the ids and encodes them anew answers for a shorter
 * prompt.
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

/* VISION_UNPROVEN: not asked yet, or the answer said nothing of it. */
enum vision_state { VISION_UNPROVEN, VISION_EXACT, VISION_DRIFTS, VISION_NONE };

/* What is asked; n_images 0: the model takes text only. */
struct vision_sample {
    struct token_span prompt;
    struct engine_image images[2];
    size_t n_images;
    int32_t pad;
    const struct sampling *sampling; /* sampling of one token */
};

/* Makes it for the model, in the arena. */
void vision_sample_make(const struct model *m, struct arena *a, struct vision_sample *ret);

/* The one question to a replica that is under way. */
struct vision_probe {
    enum vision_state state;
    struct engine_request req;
    void *attempt; /* NULL: none */
};

/* Asks the replica when that is due. */
void vision_probe_begin(struct replica *r);

/* Whether it may be asked with pictures: its kind can be, and nothing is known against it. */
bool vision_probe_lets(const struct replica *r);

/* Whether it is known to take them exactly. Kinds without health are in this process. */
bool vision_probe_proven(const struct replica *r);

/* "exact", "drifts", "none"; NULL: not known, or the model takes text only. */
const char *vision_probe_told(const struct replica *r);

/* Forgets the result when the replica goes down: another server may come back. */
void vision_probe_forget(struct replica *r);

#endif
