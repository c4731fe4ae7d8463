/* The table of formats. */
#include "worker/export/export_format.h"

static const struct format *const FORMATS[EXPORT_FORMAT_COUNT] = {
    [EXPORT_JSON] = &format_json,
    [EXPORT_MSGPACK] = &format_msgpack,
    [EXPORT_SAFETENSORS] = &format_safetensors,
    [EXPORT_VERL] = &format_verl,
    [EXPORT_MILES] = &format_miles,
    [EXPORT_AREAL] = &format_areal,
    [EXPORT_SLIME] = &format_slime,
    [EXPORT_PRIME_RL] = &format_prime_rl,
    [EXPORT_OPENAI_MESSAGES] = &format_openai_messages,
    [EXPORT_PREFIX_TREE] = &format_prefix_tree,
    [EXPORT_SKYRL] = &format_skyrl,
    [EXPORT_NEMO_GYM] = &format_nemo_gym,
    [EXPORT_ATIF] = &format_atif,
    [EXPORT_NONE] = &format_none,
    [EXPORT_VIEW] = &format_view,
};

const struct format *export_format_of(enum export_format f)
{
    return FORMATS[f];
}
