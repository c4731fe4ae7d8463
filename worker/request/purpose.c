/* The table of labels and what they are for (purpose.h). */
#include "worker/request/purpose.h"

#include "common/base/attrs.h"
#include "common/base/buf.h"

static const char *const names[] = {"main", "sub_agent", "compaction", "title", "memory", "review"};

/* Labels as agents spell them; every other one is an agent's name. */
static const struct {
    const char *label;
    enum purpose purpose;
} labels[] = {
    {"main", PURPOSE_MAIN},
    {"compact", PURPOSE_COMPACTION}, /* Codex */
    {"compaction", PURPOSE_COMPACTION},
    {"title", PURPOSE_TITLE},
    {"memory_consolidation", PURPOSE_MEMORY}, /* Codex */
    {"memory", PURPOSE_MEMORY},
    {"review", PURPOSE_REVIEW}, /* Codex */
};

enum purpose purpose_of(struct str label)
{
    if (label.len == 0)
        return PURPOSE_MAIN;
    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        if (str_eq_c(label, labels[i].label))
            return labels[i].purpose;
    }
    return PURPOSE_SUB_AGENT;
}

const char *purpose_name(enum purpose p)
{
    return names[p];
}

static unsigned bit_of(struct str name)
{
    for (unsigned i = 0; i < PURPOSE_COUNT; i++) {
        if (str_eq_c(name, names[i]))
            return 1u << i;
    }
    return 0;
}

int purposes_read(struct str list, const char *field, unsigned *ret, struct err *e)
{
    struct str left = list;

    *ret = 0;
    do {
        size_t comma = str_find(left, STR(","), 0);
        struct str one = str_trim(str_sub(left, 0, comma));
        unsigned bit = bit_of(one);

        if (bit == 0)
            return err_field(e, field,
                             "%s must be a list by commas of main, sub_agent, compaction, title, "
                             "memory, review, not \"%.*s\"",
                             field, (int)MIN_OF(one.len, (size_t)80), one.p ? one.p : "");
        *ret |= bit;
        if (comma == SIZE_MAX)
            left.p = NULL;
        else
            left = str_sub(left, comma + 1, SIZE_MAX);
    } while (left.p);
    return 0;
}
