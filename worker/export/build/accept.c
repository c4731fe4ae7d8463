/*
 * Each media range of the header is a wish: for one format by its name, for all under application/,
 * or for everything. consider_range() keeps for each format the wish that names it most closely: as
 * in RFC 9110, a named range has priority over a wildcard. Then the best of the three formats that
 * have a media type of their own wins. Unknown types and parameters are ignored. A header that
 * cannot be satisfied is not an error, because the answer names its type.
 */
#include "worker/export/build/accept.h"

enum { Q_ONE = 1000 };

/* How much a format is wanted. */
struct wish {
    unsigned q;     /* thousandths; 0: not acceptable */
    unsigned exact; /* 3 named, 2 application/..., 1 any, 0 not mentioned */
    size_t place;   /* position of the range in the header */
};

/* Reads "0", "0.5", "1.000": up to three digits after the point. Anything else counts as 0. */
static unsigned read_q(struct str v)
{
    static const unsigned scale[] = {1000, 100, 10, 1};
    uint64_t whole, rest = 0;
    struct str digits = str_sub(v, 2, SIZE_MAX);

    if (v.len > 5 || str_to_u64(str_sub(v, 0, 1), 1, &whole) != 0)
        return Q_ONE;
    if (v.len > 1 && (v.p[1] != '.' || (digits.len > 0 && str_to_u64(digits, 999, &rest) != 0)))
        return Q_ONE;
    return whole ? Q_ONE : (unsigned)rest * scale[digits.len];
}

/* Reads the media range of a list element and its weight. */
static struct str read_range(struct str element, unsigned *ret_q)
{
    struct str type = str_trim(str_cut(&element, ';'));

    *ret_q = Q_ONE;
    while (element.len > 0) {
        struct str parameter = str_trim(str_cut(&element, ';'));

        if (str_eq_nocase(str_sub(parameter, 0, 2), STR("q=")))
            *ret_q = read_q(str_sub(parameter, 2, SIZE_MAX));
    }
    return type;
}

/* Returns the format with this media type, or EXPORT_FORMAT_COUNT. */
static enum export_format of_type(struct str type)
{
    static const struct {
        const char *type;
        enum export_format format;
    } types[] = {{"application/json", EXPORT_JSON},
                 {"application/msgpack", EXPORT_MSGPACK},
                 {"application/x-msgpack", EXPORT_MSGPACK},
                 {"application/vnd.msgpack", EXPORT_MSGPACK},
                 {"application/safetensors", EXPORT_SAFETENSORS},
                 {"application/octet-stream", EXPORT_SAFETENSORS}};

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eq_nocase(type, str_cstr(types[i].type)))
            return types[i].format;
    return EXPORT_FORMAT_COUNT;
}

/* Updates a wish: the closest range decides, and among equally close ones the highest weight. */
static void consider_range(struct wish *w, unsigned exact, unsigned q, size_t place)
{
    if (exact < w->exact || (exact == w->exact && q <= w->q))
        return;
    *w = (struct wish){q, exact, place};
}

static bool is_better_wish(const struct wish *a, const struct wish *b)
{
    if (a->q != b->q)
        return a->q > b->q;
    if ((a->exact == 3) != (b->exact == 3))
        return a->exact == 3;
    return a->exact == 3 && a->place < b->place;
}

enum export_format accept_format(struct str accept, enum export_format otherwise)
{
    static const enum export_format all[] = {EXPORT_JSON, EXPORT_MSGPACK, EXPORT_SAFETENSORS};
    struct wish wishes[EXPORT_FORMAT_COUNT] = {0};
    enum export_format best = otherwise;

    for (size_t place = 0; accept.len > 0; place++) {
        unsigned q;
        struct str type = read_range(str_trim(str_cut(&accept, ',')), &q);
        enum export_format named = of_type(type);
        unsigned exact = str_eq(type, STR("*/*"))                    ? 1
                         : str_eq_nocase(type, STR("application/*")) ? 2
                                                                     : 0;

        if (named != EXPORT_FORMAT_COUNT)
            consider_range(&wishes[named], 3, q, place);
        for (size_t i = 0; exact > 0 && i < EXPORT_FORMAT_COUNT; i++)
            consider_range(&wishes[i], exact, q, place);
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (wishes[all[i]].q > 0 && is_better_wish(&wishes[all[i]], &wishes[best]))
            best = all[i];
    return best;
}
