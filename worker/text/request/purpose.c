/* The table of labels and what they are for (purpose.h). */
#include "worker/text/request/purpose.h"

#include "common/base/attrs.h"

static const char *const names[] = {"main", "sub_agent", "compaction", "title", "memory", "review"};

/* Labels in the spelling of agents. Every other label is an agent's name. */
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

/* Returns the purpose of a label; PURPOSE_SUB_AGENT if the table does not have it. */
static enum purpose word_of(struct str label)
{
    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        if (str_eq_c(label, labels[i].label))
            return labels[i].purpose;
    }
    return PURPOSE_SUB_AGENT;
}

/* Finds the end of the name before :PURPOSE; returns label.len if no purpose follows. */
static size_t name_end(struct str label)
{
    size_t at = label.len;

    while (at > 0 && label.p[at - 1] != ':')
        at--;
    if (at < 2 || word_of(str_sub(label, at, label.len)) == PURPOSE_SUB_AGENT)
        return label.len;
    return at - 1;
}

enum purpose purpose_of(struct str label)
{
    size_t end = name_end(label);

    if (label.len == 0)
        return PURPOSE_MAIN;
    if (end == label.len)
        return word_of(label);
    return word_of(str_sub(label, end + 1, label.len)) == PURPOSE_MAIN
               ? word_of(str_sub(label, 0, end))
               : word_of(str_sub(label, end + 1, label.len));
}

struct str role_of(struct str label)
{
    struct str name;
    enum purpose p;

    if (label.len == 0)
        return STR("main");
    name = str_sub(label, 0, name_end(label));
    p = word_of(name);
    return name.len == 0 || (p != PURPOSE_SUB_AGENT && p != PURPOSE_REVIEW) ? STR("main") : name;
}

const char *purpose_name(enum purpose p)
{
    return names[p];
}

static unsigned bit_of(struct str name)
{
    size_t i = str_index(name, names, PURPOSE_COUNT);

    return i < PURPOSE_COUNT ? 1u << i : 0;
}

int purposes_read(struct str list, const char *field, unsigned *ret, struct err *e)
{
    struct str left = list;

    *ret = 0;
    do {
        struct str one = str_trim(str_cut(&left, ','));
        unsigned bit = bit_of(one);

        if (bit == 0)
            return err_field(e, field,
                             "%s must be a list by commas of main, sub_agent, compaction, title, "
                             "memory, review, not \"%.*s\"",
                             field, (int)MIN_OF(one.len, (size_t)80), one.p ? one.p : "");
        *ret |= bit;
    } while (left.p);
    return 0;
}

int roles_check(struct str list, const char *field, struct err *e)
{
    struct str left = list;

    do {
        if (str_trim(str_cut(&left, ',')).len == 0)
            return err_field(e, field,
                             "%s must be a list by commas of main and names of sub-agents", field);
    } while (left.p);
    return 0;
}

bool roles_have(struct str list, struct str label)
{
    struct str role = role_of(label);

    if (!list.p)
        return true;
    while (list.p) {
        if (str_eq(str_trim(str_cut(&list, ',')), role))
            return true;
    }
    return false;
}
