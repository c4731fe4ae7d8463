/*
 * The n-th placeholder among the stored ids is the n-th picture of the messages. Different numbers
 * are an error. Then every array over the response is copied once with space for the runs
 * (spread_array), and positions in turns and pictures are moved (moved_position):
 *
 *   stored     a  b  IMG  c            offset 2, length 1
 *   expanded   a  b  IMG IMG IMG c     offset 2, length 3
 *
 * New elements of an array are zero, or -1 for versions, because nothing was sampled there. Odds
 * are filled again, by the turns' new positions. Scores of other engines are left out.
 */
#include "worker/export/build/pictures_layout.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/build/trajectory_odds.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/score.h"
#include "worker/session/store/session_view.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"
#include "worker/text/request/images.h"

uint64_t track_image_extra(const struct trajectory_input *in, const struct track *t)
{
    const struct message_node *node = t->tail ? t->tail->node->parent : t->head->node;
    struct arena tmp = {0};
    uint64_t extra = 0;

    if (!session_view(in->session).has_images)
        return 0;
    extra = images_sum(node_messages(node, &tmp), 0).extra;
    arena_done(&tmp);
    return extra;
}

/* --- finding --- */

static void collect_image(void *ctx, const struct json *part)
{
    struct trajectory *t = ctx;
    struct image_part p;

    image_part_read(part, &p);
    t->images[t->n_images++] = (struct trajectory_image){.part = part, .length = p.tokens};
}

/* Finds the positions of the placeholders in the stored ids. */
static bool find_places(struct trajectory *t, int32_t pad)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->total; i++) {
        if (t->ids[i] != pad)
            continue;
        if (n == t->n_images)
            return false;
        t->images[n++].offset = i;
    }
    return n == t->n_images;
}

/* --- moving --- */

/* Returns the new position of the stored id at `at`. */
static uint32_t moved_position(const struct trajectory *t, uint32_t at)
{
    uint32_t to = at;

    for (uint32_t i = 0; i < t->n_images && t->images[i].offset < at; i++)
        to += t->images[i].length - 1;
    return to;
}

/* Copies an array over the response with space for the runs. New elements are zero. */
static void *spread_array(const struct trajectory *t, struct arena *a, const void *from,
                          size_t size)
{
    uint32_t begin = moved_position(t, t->n_prompt), n = moved_position(t, t->total) - begin;
    char *out = arena_calloc(a, (size_t)n + 1, size);
    uint32_t image = 0, to = 0;

    if (!from)
        return NULL;
    while (image < t->n_images && t->images[image].offset < t->n_prompt)
        image++;
    for (uint32_t i = 0; i < t->n; i++) {
        bool run = image < t->n_images && t->images[image].offset == t->n_prompt + i;

        memcpy(out + (size_t)to * size, (const char *)from + (size_t)i * size, size);
        to += run ? t->images[image++].length : 1;
    }
    return out;
}

static int32_t *spread_ids(const struct trajectory *t, struct arena *a)
{
    int32_t *out = arena_calloc(a, (size_t)moved_position(t, t->total) + 1, sizeof(*out));
    uint32_t image = 0, to = 0;

    for (uint32_t i = 0; i < t->total; i++) {
        bool run = image < t->n_images && t->images[image].offset == i;
        uint32_t times = run ? t->images[image++].length : 1;

        for (; times > 0; times--)
            out[to++] = t->ids[i];
    }
    return out;
}

/* Copies the versions. New elements are -1, because nothing was sampled there. */
static void spread_versions(struct trajectory *t, struct arena *a)
{
    int64_t *out = spread_array(t, a, t->versions, sizeof(*t->versions));
    uint32_t begin = moved_position(t, t->n_prompt);

    for (uint32_t i = 0; out && i < t->n_images; i++) {
        uint32_t from = moved_position(t, t->images[i].offset);

        for (uint32_t k = 0; t->images[i].offset >= t->n_prompt && k < t->images[i].length; k++)
            out[from - begin + k] = -1;
    }
    t->versions = out;
}

static void spread_all(struct trajectory *t, struct arena *a)
{
    uint32_t begin = moved_position(t, t->n_prompt), total = moved_position(t, t->total);

    t->mask = spread_array(t, a, t->mask, sizeof(*t->mask));
    t->logprobs = spread_array(t, a, t->logprobs, sizeof(*t->logprobs));
    t->version_texts = spread_array(t, a, t->version_texts, sizeof(*t->version_texts));
    spread_versions(t, a);
    for (uint32_t i = 0; i < t->n_turns; i++) {
        struct trajectory_turn *x = &t->turns[i];
        uint32_t n = x->end - x->start; /* an answer contains no picture */

        x->start = moved_position(t, t->n_prompt + x->start) - begin;
        x->end = x->start + n;
    }
    t->ids = spread_ids(t, a);
    for (uint32_t i = t->n_images; i-- > 0;)
        t->images[i].offset = moved_position(t, t->images[i].offset);
    t->n_prompt = begin;
    t->total = total;
    t->n = total - begin;
    t->n_arrays = 0; /* filled again below, by the turns' new positions */
    t->odds = (struct trajectory_odds){0};
    /* scorers get no pictures, so there are no scores */
    memset(t->scores, 0, SCORE_KINDS * sizeof(t->scores[0]));
    trajectory_fill_odds(a, t);
}

static int fail_disagreement(const struct trajectory *t, struct err *e)
{
    return err_set(
        e, ERR_UNASSEMBLABLE,
        "the trajectory cannot be assembled: its ids have not one placeholder for each of "
        "its %u images",
        t->n_images);
}

int trajectory_expand(const struct trajectory_input *in, bool collapsed, struct arena *a,
                      struct trajectory *t, struct err *e)
{
    const struct vision *v = in->model ? model_info(in->model)->vision : NULL;
    struct images_sum sum = {0};

    t->sampled = t->ids + t->n_prompt;
    t->n_sampled = t->n;
    if (session_view(in->session).has_images && !t->text)
        sum = images_sum(t->messages, 0);
    if (sum.n == 0)
        return 0;
    if (!v)
        return err_set(e, ERR_UNASSEMBLABLE,
                       "the session has images, and this gateway's model takes text only");
    t->images = arena_calloc(a, sum.n, sizeof(*t->images));
    images_each(t->messages, 0, collect_image, t);
    if (!find_places(t, v->pad))
        return fail_disagreement(t, e);
    for (uint32_t i = 0; collapsed && i < t->n_images; i++)
        t->images[i].length = 1;
    if (!collapsed)
        spread_all(t, a);
    return 0;
}

/* --- writing --- */

/* Writes the first turn whose prompt had the position `at`; null if none had. */
static void put_turn(const struct trajectory *t, uint32_t at, struct json_out *o)
{
    uint32_t k = 0;

    while (k < t->n_turns && t->n_prompt + t->turns[k].start <= at)
        k++;
    json_out_key(o, "turn");
    if (k < t->n_turns)
        json_out_i64(o, k);
    else
        json_out_null(o);
}

void images_write(const struct trajectory *t, struct json_out *o)
{
    if (t->n_images == 0)
        return;
    json_out_member_arr(o, "images");
    for (uint32_t i = 0; i < t->n_images; i++) {
        struct image_part p;

        image_part_read(t->images[i].part, &p);
        json_out_obj(o);
        json_out_member_str(o, "media", p.media);
        put_turn(t, t->images[i].offset, o);
        json_out_member_i64(o, "offset", t->images[i].offset);
        json_out_member_i64(o, "length", t->images[i].length);
        json_out_member_arr(o, "grid_thw");
        for (size_t k = 0; k < ARRAY_LEN(p.grid); k++)
            json_out_i64(o, p.grid[k]);
        json_out_end_arr(o);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}
