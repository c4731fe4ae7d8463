/*
 * The names of tool-call and reasoning formats, and the guess from a chat template.
 */
#ifndef RG_PARSERS_KINDS_H
#define RG_PARSERS_KINDS_H

#include "common/base/buf.h"
#include "common/base/str.h"

/* X(KIND, name): names of --tool-parser. */
#define TOOL_KINDS(X)               \
    X(NONE, "none")                 \
    X(HERMES, "hermes")             \
    X(QWEN3_CODER, "qwen3_coder")   \
    X(LLAMA3_JSON, "llama3_json")   \
    X(PYTHONIC, "pythonic")         \
    X(MISTRAL, "mistral")           \
    X(DEEPSEEK_V3, "deepseek_v3")   \
    X(DEEPSEEK_V31, "deepseek_v31") \
    X(DEEPSEEK_V32, "deepseek_v32") \
    X(GLM45, "glm45")               \
    X(GLM47, "glm47")               \
    X(KIMI_K2, "kimi_k2")           \
    X(GPT_OSS, "gpt_oss")           \
    X(MINIMAX_M2, "minimax_m2")

/* X(KIND, name): names of --reasoning-parser. */
#define REASONING_KINDS(X)        \
    X(NONE, "none")               \
    X(QWEN3, "qwen3")             \
    X(DEEPSEEK_R1, "deepseek_r1") \
    X(GLM45, "glm45")             \
    X(HARMONY, "harmony")         \
    X(MINIMAX, "minimax")         \
    X(KIMI, "kimi")               \
    X(KIMI_K2, "kimi_k2")         \
    X(MISTRAL, "mistral")

enum tool_kind {

#define X(kind, name) TOOL_##kind,
    TOOL_KINDS(X)
#undef X
        TOOL_KIND_COUNT
};

enum reasoning_kind {

#define X(kind, name) REASONING_##kind,
    REASONING_KINDS(X)
#undef X
        REASONING_KIND_COUNT
};

/* The kind of a name as users write it (case, '-' and '_' alike; the engines' own names such as
 * qwen25, deepseekv31, gpt-oss are known); 0 and *ret, or -1. */
int tool_kind_named(struct str name, enum tool_kind *ret);
int reasoning_kind_named(struct str name, enum reasoning_kind *ret);

/* Appends all names, for errors: "none, hermes, ...". */
void tool_kind_names(struct buf *out);
void reasoning_kind_names(struct buf *out);

const char *tool_kind_name(enum tool_kind kind);
const char *reasoning_kind_name(enum reasoning_kind kind);

/* The kinds that a chat template's source speaks, by the markers in it. */
void parser_detect(struct str template_source, enum tool_kind *tool,
                   enum reasoning_kind *reasoning);

#endif
