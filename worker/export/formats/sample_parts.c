/*
 * The response's text is decoded 4096 ids at a time and appended as the inside of one JSON string;
 * the detokenizer keeps the bytes of a cut character. Without a tokenizer the text is empty, but
 * the ids are present.
 *
 * prefix_cache_info is computed from the session: the prompt of each turn, and how much of it was
 * already on its parent's path. So it is what could be cached, whatever the engine did.
 */
#include "worker/export/formats/sample_parts.h"

#include <string.h>

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/numbers.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/recall.h"
#include "worker/text/model/model.h"
#include "worker/text/request/odds.h"
#include "worker/text/tokens/tokenizer.h"

enum { PART_IDS = 4096, PART_NUMBERS = 16384 }; /* ids of one step: as text; as numbers */

/* --- the response --- */

static void put_text(struct buf *out, struct buf *text)
{
    size_t at = out->len;

    json_write_string(out, buf_str(text));
    memmove(out->p + at, out->p + at + 1, out->len - at - 2); /* remove the quotes */
    out->len -= 2;
    buf_done(text);
}

void sample_put_response(struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct tokenizer *k = x->input.model ? model_tokenizer(x->input.model) : NULL;
    struct detok *detok = k ? detok_new(k, false) : NULL;
    struct buf text = {0};

    json_out_key(o, "response");
    o->comma = true;
    buf_add_c(o->b, '"');
    for (uint32_t i = 0; detok && i < t->n_sampled; i++) {
        detok_feed(detok, t->sampled[i], &text);
        if (i % PART_IDS != PART_IDS - 1)
            continue;
        put_text(o->b, &text);
        if (!export_pause(x))
            break;
    }
    if (detok)
        detok_finish(detok, &text);
    put_text(o->b, &text);
    buf_add_c(o->b, '"');
    detok_free(detok);
}

/* --- facts --- */

const char *sample_status(const struct trajectory *t)
{
    const struct checkpoint *last = t->turns[t->n_turns - 1].checkpoint;

    if (checkpoint_truncated(last) || t->track->head != t->track->whole)
        return "truncated";
    return str_eq_c(last->finish_reason, "abort") ? "aborted" : "completed";
}

/* Returns the oldest known weights that sampled any token of the turn; absent: none are known.
 * Staleness is counted from them. Versions that are not numbers are ordered by their spans. */
static struct str oldest_version(const struct checkpoint *checkpoint)
{
    struct str oldest = {0};
    uint64_t least = 0, n;

    for (uint32_t i = 0; i < checkpoint->n_versions; i++) {
        struct str version = checkpoint->versions[i].version;
        bool number = str_to_u64(version, UINT64_MAX, &n) == 0;

        if (version.len == 0 || (oldest.p && (!number || n >= least)))
            continue;
        oldest = version;
        if (!number)
            break;
        least = n;
    }
    return oldest;
}

int32_t *sample_offsets(struct export *x, const struct trajectory *t)
{
    int32_t *at = arena_calloc(&x->scratch, t->n + (size_t)1, sizeof(*at));

    for (uint32_t i = 0; i < t->n; i++)
        at[i + 1] = at[i] + t->odds.support->counts[i];
    return at;
}

void sample_put_versions(const struct trajectory *t, struct json_out *o)
{
    json_out_member_arr(o, "weight_versions");
    for (uint32_t i = 0; i < t->n_turns; i++) {
        struct str oldest = oldest_version(t->turns[i].checkpoint);

        if (oldest.p)
            json_out_str(o, oldest);
    }
    json_out_end_arr(o);
}

void sample_put_cache(const struct trajectory *t, struct json_out *o)
{
    int64_t cached = 0, prompts = 0;

    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct checkpoint *checkpoint = t->turns[i].checkpoint;

        prompts += checkpoint_start(checkpoint);
        cached += checkpoint->parent ? checkpoint->parent->total - checkpoint->trim : 0;
    }
    json_out_member_obj(o, "prefix_cache_info");
    json_out_member_i64(o, "cached_tokens", cached);
    json_out_member_i64(o, "total_prompt_tokens", prompts);
    json_out_end_obj(o);
}

void sample_put_pictures(struct export *x, const struct trajectory *t, bool tensors,
                         struct json_out *o)
{
    if (t->n_images == 0 || x->options.media == MEDIA_NONE)
        return;
    json_out_member_obj(o, "multimodal_inputs");
    json_out_member_arr(o, "images");
    for (uint32_t i = 0; i < t->n_images; i++) {
        if (tensors)
            json_out_str(o, arena_printf(&x->scratch, "media.%u", t->images[i].place));
        else
            media_put_url(x, &t->images[i], o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

void sample_ids_begin(struct session *session, struct sample_ids *s)
{
    struct branch_vec b = {0};

    session_branches(session, &b);
    if (b.n) {
        const struct branch *newest = &b.at[b.n - 1];

        s->of = newest->tail ? newest->tail : newest->head;
        s->n = branch_total(newest);
    }
    vec_done(&b);
}

/* Reads the ids into the scratch arena. Returns NULL if the export has failed. */
MAY_PAUSE static int32_t *read_ids(struct export *x, const struct sample_ids *s)
{
    int32_t *ids;

    x->recall->rows = false;
    recall_path(x->recall, s->of);
    if (!export_recall(x))
        return NULL;
    ids = arena_alloc(&x->scratch, s->of->total * sizeof(*ids));
    checkpoint_copy(s->of, ids);
    recall_done(x->recall);
    return ids;
}

void sample_put_ids(struct export *x, const struct sample_ids *s, struct buf *out)
{
    const int32_t *ids = s->n > 0 ? read_ids(x, s) : NULL;

    for (size_t at = 0; ids && at < s->n && export_pause(x); at += PART_NUMBERS) {
        if (at > 0)
            buf_add_c(out, ',');
        numbers_i32(out, ids + at, MIN_OF(s->n - at, (size_t)PART_NUMBERS));
    }
}
