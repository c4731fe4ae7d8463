/* Answers what callers need to know of a pool before a call: whether it accepts pictures, budgets,
 * grammars, extra fields. An answer is about all replicas together, because a call may run at any
 * of them. Usually it is yes only if every one can. While there is no replica (--engine none)
 * nothing is refused that later ones may be able to do. */
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/proc/board.h"
#include "worker/engine/pool/extra.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/vision_probe.h"

int engine_pool_takes_lora(const struct engine_pool *p, const struct json *extra, struct err *e)
{
    size_t without = 0;

    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct engine_adapter *a = p->replicas->at[i]->adapter;

        if (!a->lora_field)
            return err_field(e, "adapter", "adapter: engines of kind %s have none", a->kind);
        if (json_get(extra, a->lora_field))
            return err_field(e, "adapter", "adapter stands beside engine_extra.%s, which names one",
                             a->lora_field);
        without += replica_lora(p->replicas->at[i]) == LORA_NONE;
    }
    if (without > 0 && without == p->replicas->n)
        return err_field(e, "adapter",
                         "adapter: no engine was started for adapters (--enable-lora): they would "
                         "sample with the weights below it");
    return 0;
}

static size_t count_text(const struct engine_pool *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->replicas->n; i++)
        n += p->replicas->at[i]->adapter == &engine_openai;
    return n;
}

bool engine_pool_some_text(const struct engine_pool *p)
{
    return count_text(p) > 0;
}

bool engine_pool_all_text(const struct engine_pool *p)
{
    return p->replicas->n > 0 && count_text(p) == p->replicas->n;
}

bool engine_pool_takes_images(const struct engine_pool *p)
{
    /* Routed experts come with a row for each token that the engine has processed. */
    if (p->opt.routed_experts)
        return false;
    for (size_t i = 0; i < p->replicas->n; i++) {
        if (p->replicas->at[i]->adapter->takes_images)
            return true;
    }
    return p->replicas->n == 0; /* later engines may be able to */
}

bool engine_pool_images_proven(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        if (!vision_probe_proven(p->replicas->at[i]))
            return false;
    }
    return true;
}

uint32_t engine_pool_drifting(const struct engine_pool *p)
{
    uint32_t n = 0;

    for (size_t i = 0; i < p->replicas->n; i++)
        n += p->replicas->at[i]->vision->state == VISION_DRIFTS;
    return n;
}

uint32_t engine_pool_bases(const struct engine_pool *p)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < p->replicas->n; i++) {
        enum logprob_basis asked = p->replicas->at[i]->adapter->asks_basis;

        bits |= 1u << replica_basis(p->replicas->at[i]);
        if (asked != BASIS_UNKNOWN)
            bits |= 1u << (BOARD_BASIS_ASKED + asked);
    }
    return bits;
}

int engine_pool_check_images(const struct engine_pool *p, struct err *e)
{
    bool drifts = false;

    for (size_t i = 0; i < p->replicas->n; i++) {
        if (vision_probe_lets(p->replicas->at[i]))
            return 0;
        drifts = drifts || p->replicas->at[i]->vision->state == VISION_DRIFTS;
    }
    if (p->replicas->n == 0)
        return 0; /* later engines may be able to */
    return err_field(e, "messages",
                     drifts
                         ? "the chat has images, and the engine of this model makes other tokens "
                           "of them, or of the ids around them, than it is told to"
                         : "the chat has images, and the engine of this model takes text only");
}

uint32_t engine_pool_context(const struct engine_pool *p)
{
    uint32_t least = 0;

    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];
        uint32_t n = r->adapter->context ? r->adapter->context(r->impl) : 0;

        if (n > 0 && (least == 0 || n < least))
            least = n;
    }
    return least;
}

bool engine_pool_constrains(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas->n; i++)
        if (!p->replicas->at[i]->adapter->passes_request)
            return true;
    return p->replicas->n == 0; /* later engines may be able to */
}

bool engine_pool_logprobs_own(const struct engine_pool *p, const struct sampling *s)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];

        if (!r->adapter->passes_request && !logprob_basis_is_own(replica_basis(r), s))
            return false;
    }
    return true;
}

static bool lacks_field(const struct engine_pool *p, const char *name)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        if (engine_adapter_lists(p->replicas->at[i]->adapter->cannot_take, name))
            return true;
    }
    return false;
}

const char *engine_pool_cannot_take(const struct engine_pool *p, const struct sampling *s)
{
    const char *name = "";

    for (size_t i = 0; name; i++) {
        if (sampling_extra(s, i, &name) && lacks_field(p, name))
            return name;
    }
    return NULL;
}

bool engine_pool_wants_experts(const struct engine_pool *p)
{
    return p->opt.routed_experts;
}

bool engine_pool_budgets_thinking(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];

        if (!r->adapter->budgets || !r->adapter->budgets(r->impl))
            return false;
    }
    return true;
}

int engine_pool_tells(const struct engine_pool *p, const char *what, struct err *e)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct engine_adapter *a = p->replicas->at[i]->adapter;

        if (engine_adapter_lists(a->cannot_tell, what))
            return err_field(e, what, "%s: engines of kind %s do not tell it", what, a->kind);
    }
    return 0;
}

int engine_pool_takes_extra(const struct engine_pool *p, const struct json *extra, struct err *e)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        if (engine_extra_check(p->replicas->at[i]->adapter, extra, e))
            return -1;
    }
    return 0;
}

uint32_t engine_pool_lacks(const struct engine_pool *p)
{
    uint32_t lacks = 0;

    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];

        lacks |= r->adapter->lacks ? r->adapter->lacks(r->impl) : 0;
    }
    return lacks;
}

void engine_pool_note_ignored(struct engine_pool *p, struct str replica, const char *field)
{
    for (size_t i = 0; i < p->replicas->n; i++) {
        struct replica *r = p->replicas->at[i];

        if (r->adapter->note_ignored && str_eq_c(replica, r->target.name))
            r->adapter->note_ignored(r->impl, field);
    }
}

bool engine_pool_enforces(const struct engine_pool *p, struct str type)
{
    for (size_t i = 0; type.len && i < p->replicas->n; i++) {
        const char *cannot = p->replicas->at[i]->adapter->cannot_enforce;

        if (cannot && str_find(str_cstr(cannot), type, 0) != SIZE_MAX)
            return false;
    }
    return true;
}
