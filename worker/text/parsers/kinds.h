/*
 * The names of tool-call and reasoning formats, and the guess from a chat template.
 */
#ifndef RG_PARSERS_KINDS_H
#define RG_PARSERS_KINDS_H

#include <stdbool.h>

#include "common/base/str.h"

struct buf;

/*
 * X(KIND, name, other names): --tool-parser. A kind is a way to write calls, and has one parser
 * here. Engines name theirs after models, so they have several names for one way, and two engines
 * may have different names for it. Each kind has one name of ours (the engines' where they agree).
 * The other names are those of SGLang and vLLM (--tool-call-parser) and of models. So a user can
 * give rollgate the name that an engine is started with. That is optional. rollgate asks engines
 * for ids, so their own parsers are not used (except for kind openai). Without the setting the
 * template's marks decide (parser_detect). A name that is in no row has no parser here and is
 * refused, never guessed.
 */
#define TOOL_KINDS(X)                                                         \
    X(NONE, "none", "")                                                       \
    X(HERMES, "hermes", "qwen qwen25 qwen3 granite4 trinity")                 \
    X(QWEN3_CODER, "qwen3_coder",                                             \
      "qwen3_xml step3p5 nemotron3 nemotron_3 nemotron_v3 mimo nanbeige")     \
    X(LLAMA3_JSON, "llama3_json", "llama3 llama4_json llama")                 \
    X(PYTHONIC, "pythonic", "llama4_pythonic toolace")                        \
    X(MISTRAL, "mistral", "")                                                 \
    X(DEEPSEEK_V3, "deepseek_v3", "deepseekv3 v3")                            \
    X(DEEPSEEK_V31, "deepseek_v31", "deepseekv31 v31")                        \
    X(DEEPSEEK_V32, "deepseek_v32", "deepseekv32 v32 deepseek_v4 deepseekv4") \
    X(GLM45, "glm45", "glm ling3 spark25 poolside_v1")                        \
    X(GLM47, "glm47", "")                                                     \
    X(KIMI_K2, "kimi_k2", "")                                                 \
    X(GPT_OSS, "gpt_oss", "openai harmony")                                   \
    X(MINIMAX_M2, "minimax_m2", "")                                           \
    X(MINIMAX_M3, "minimax_m3", "")                                           \
    X(GEMMA4, "gemma4", "")                                                   \
    X(FUNCTIONGEMMA, "functiongemma", "")                                     \
    X(COHERE, "cohere_command4", "cohere_command3 cohere")                    \
    X(LFM2, "lfm2", "")                                                       \
    X(OLMO3, "olmo3", "")                                                     \
    X(KIMI_K3, "kimi_k3", "")                                                 \
    X(JAMBA, "jamba", "hunyuan_a13b apriel minimax minimax_m1")               \
    X(HY_V3, "hy_v3", "hunyuan hy3")                                          \
    X(HY_V4, "hy_v4", "")                                                     \
    X(GRANITE, "granite", "granite3")                                         \
    X(GRANITE_20B_FC, "granite_20b_fc", "")                                   \
    X(NEMOTRON_NANO_V2, "nemotron_nano_v2", "nemotron_json")                  \
    X(SEED_OSS, "seed_oss", "")                                               \
    X(PHI4_MINI, "phi4_mini_json", "phi4_mini firefunction")                  \
    X(INTERNLM, "internlm", "internlm2 interns1 intern_s1")                   \
    X(ERNIE45, "ernie45", "")                                                 \
    X(STEP3, "step3", "")                                                     \
    X(XLAM, "xlam", "")                                                       \
    X(APERTUS, "apertus", "apertus2509")                                      \
    X(GIGACHAT3, "gigachat3", "")                                             \
    X(GIGACHAT35, "gigachat35", "")                                           \
    X(SOLAR, "solar_open", "")                                                \
    X(SOLAR2, "solar_open2", "")                                              \
    X(MINICPM5, "minicpm5", "")                                               \
    X(INKLING, "inkling", "")                                                 \
    X(LONGCAT, "longcat", "")                                                 \
    X(DEEPSEEK_V41, "deepseek_v41", "deepseekv41")                            \
    X(GLM53_FLASH, "glm53_flash", "")                                         \
    X(HYPERCLOVAX, "hyperclovax_seed_think", "")                              \
    X(HYPERCLOVAX_14B, "hyperclovax_seed_think_14b", "hyperclovax")           \
    X(FUNCTIONARY, "functionary", "functionary_v31")                          \
    X(FUNCTIONARY_V32, "functionary_v32", "")                                 \
    X(DOTS, "dots", "")                                                       \
    X(K2_HORIZON, "k2_horizon", "")                                           \
    X(IQUEST_Q1, "iquest_q1", "")                                             \
    X(PLAMO3, "plamo3", "")                                                   \
    X(MUSE, "muse_glimmer", "muse")

/* The kinds of --reasoning-parser, in the same form (the engines' flag has the same name). A kind
 * is a pair of marks and the habits of its models. */
#define REASONING_KINDS(X)                                                                       \
    X(NONE, "none", "identity minimax_append_think minimax_m2_append_think")                     \
    X(QWEN3, "qwen3",                                                                            \
      "deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 interns1 intern_s1 "       \
      "nemotron_3 nemotron_v3 nano_v3 mimo dots nanbeige holo2 hy_v3 hunyuan ling3 poolside_v1 " \
      "olmo3 "                                                                                   \
      "trinity spark25 glm53_flash minicpm5 telechat4")                                          \
    X(DEEPSEEK_R1, "deepseek_r1", "qwen3_thinking step3 step3p5 gigachat35 iquest_q1")           \
    X(GLM45, "glm45", "glm47")                                                                   \
    X(HARMONY, "harmony", "gpt_oss openai_gptoss")                                               \
    X(MINIMAX, "minimax", "minimax_m2")                                                          \
    X(KIMI, "kimi", "")                                                                          \
    X(KIMI_K2, "kimi_k2", "kimi_k25")                                                            \
    X(MISTRAL, "mistral", "")                                                                    \
    X(GEMMA4, "gemma4", "")                                                                      \
    X(COHERE, "cohere_command4", "cohere_command3 cohere")                                       \
    X(SEED_OSS, "seed_oss", "")                                                                  \
    X(MINIMAX_M3, "minimax_m3", "")                                                              \
    X(KIMI_K3, "kimi_k3", "")                                                                    \
    X(HUNYUAN, "hunyuan_a13b", "")                                                               \
    X(HY_V4, "hy_v4", "")                                                                        \
    X(APERTUS, "apertus2509", "apertus")                                                         \
    X(ERNIE45, "ernie45", "")                                                                    \
    X(GRANITE, "granite", "")                                                                    \
    X(GRANITE_THINKING, "granite_thinking_parser", "")                                           \
    X(SOLAR2, "solar_open2", "solar_open")                                                       \
    X(INKLING, "inkling", "")                                                                    \
    X(LONGCAT, "longcat", "")                                                                    \
    X(K2_HORIZON, "k2_horizon", "")                                                              \
    X(PLAMO3, "plamo3", "")                                                                      \
    X(MUSE, "muse_glimmer", "muse")

enum tool_kind {

#define X(kind, name, others) TOOL_##kind,
    TOOL_KINDS(X)
#undef X
        TOOL_KIND_COUNT
};

enum reasoning_kind {

#define X(kind, name, others) REASONING_##kind,
    REASONING_KINDS(X)
#undef X
        REASONING_KIND_COUNT
};

/* Reports whether a call ends the answer, so that "at most one call" needs no grammar. */
static inline bool tool_kind_ends_answer(enum tool_kind kind)
{
    return kind == TOOL_GPT_OSS;
}

/* Finds a kind by a user's name. Case does not matter, '-' equals '_', and the engines' own names
 * such as qwen25, deepseekv31, gpt-oss are known. Returns 0 and *ret, or -1. */
int tool_kind_named(struct str name, enum tool_kind *ret);
int reasoning_kind_named(struct str name, enum reasoning_kind *ret);

/* Appends all names, for errors: "none, hermes (qwen, qwen25 ...), ...", and that none is needed.
 */
void tool_kind_names(struct buf *out);
void reasoning_kind_names(struct buf *out);

const char *tool_kind_name(enum tool_kind kind);
const char *reasoning_kind_name(enum reasoning_kind kind);

/* Texts in a template's source that decided the choice, NULL-terminated. Literals. */
struct parser_marks {
    const char *tool[2], *reasoning[2];
};

/* Chooses the kinds for a chat template by the marks in its source. */
struct parser_marks parser_detect(struct str template_source, enum tool_kind *tool,
                                  enum reasoning_kind *reasoning);

/* State of the thought at the end of a prompt. */
enum thought_state {
    THOUGHT_MAYBE, /* the prompt does not decide: the model opens a thought or not */
    THOUGHT_OPEN,  /* a thought is open */
    THOUGHT_CLOSED /* the prompt has closed it */
};

/* Formats of tool calls and thoughts in a model's answers. */
struct answer_formats {
    enum tool_kind tool;
    enum reasoning_kind reasoning;
    enum thought_state thought;
};

#endif
