/* Checks the pictures of a call's conversation: that the model takes them, and that the prompt
 * contains them. */
#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/store/store.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"
#include "worker/text/request/images.h"

/* The first messages are the session's: if the session has no pictures they are skipped. */
int plan_count_images(struct plan *p, struct err *e)
{
    uint32_t from = p->session->forest.has_images ? 0 : p->n_stored;
    struct images_sum sum = images_sum(p->chat.messages, from);

    p->pub.images = sum.n;
    p->pub.image_extra = sum.extra;
    if (sum.n == 0)
        return 0;
    if (p->text || !model_info(p->session->store->model)->vision)
        return err_field(e, "messages",
                         "this conversation has images, and the model takes text only");
    if (json_is_true(json_get(p->chat.kwargs, "add_vision_id")))
        return err_field(e, "chat_template_kwargs",
                         "add_vision_id numbers images over the whole chat, which is not rendered "
                         "as a whole here");
    return 0;
}

int plan_check_images(const struct plan *p, struct err *e)
{
    const struct vision *v = model_info(p->session->store->model)->vision;
    struct token_parts all = p->made.prompt;
    uint32_t n = 0;

    if (p->pub.images == 0)
        return 0;
    for (size_t k = 0; k < all.n_parts; k++)
        for (size_t i = 0; i < all.parts[k].n; i++)
            n += all.parts[k].at[i] == v->pad;
    if (n == p->pub.images)
        return 0;
    return err_field(e, "messages",
                     "the chat template makes %u placeholders of this conversation's %u images: it "
                     "does not show them where they stand",
                     n, p->pub.images);
}
