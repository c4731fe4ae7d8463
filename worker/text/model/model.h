/*
 * struct model: a loaded model folder: tokenizer, chat template, turn boundaries, and which
 * parsers read its answers. Loaded by the supervisor before the fork and immutable afterwards, so
 * all workers share its pages. Anything that must be written while using it (encoder cache,
 * template arena) sits in struct model_scratch, one per process.
 */
#ifndef RG_MODEL_MODEL_H
#define RG_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "worker/text/tokens/span.h"

struct chat;
struct json;
struct model;
struct model_scratch;
struct template;
struct tokenizer;
struct vision;

/* Everything borrowed for the call; NULL or empty means "from the folder" / "detect". */
struct model_options {
    const char *dir; /* NULL: the built-in byte tokenizer with a ChatML/Hermes template */
    const char *chat_template_file;
    const char *served_name; /* default: the folder's last path part, "rollgate-builtin" */
    const char *tool_parser;
    const char *reasoning_parser;
    const char *tito_family;
    const char
        *tool_images; /* where pictures of tools' results are shown: "auto", "inline", "user" */
    uint32_t context_length; /* 0: from config.json / tokenizer_config.json */
};

/* The values that a stored session compares before it continues with a model: whether ids mean the
 * same (tokenizer), where turns begin and end (special tokens and stop ids), how messages are
 * written (template). Each is stable across machines and versions; 0: not known. */
struct model_fingerprint {
    uint64_t tokenizer, special, template;
};

/* Facts of a loaded model; strings live as long as the model. */
struct model_info {
    const char *name;
    uint32_t vocab_size;
    uint32_t context_length; /* 0: unknown */
    const int32_t *stop_ids; /* ids that end an assistant turn (eos ids and the turn close) */
    size_t n_stop_ids;
    const int32_t *lead_ids; /* ids between the end of a message and the answer: the rest of the
                                close and the generation prompt */
    size_t n_lead_ids;
    const char *tool_parser;
    const char *reasoning_parser;
    const char *family;
    const char *const *
        append_roles; /* NULL-ended: roles that the template can write after an answer; NULL: any */
    bool append_only; /* earlier turns are never rewritten by the template */
    bool content_lists;          /* the template handles content as a list of parts */
    const struct vision *vision; /* how pictures become tokens; NULL: text only */
    const char *tool_images;     /* "inline", "user"; NULL: the template takes none of tools */
    uint32_t moe_layers;         /* routed experts: rows x layers x topk; 0: unknown */
    uint32_t moe_topk;
    uint32_t layers;       /* layers of the model; 0: unknown */
    uint32_t indexer_topk; /* positions that an indexer chooses for each; 0: no indexer */
    struct model_fingerprint fingerprint;
};

/* Loads a folder (or the built-in). Refuses by name what it cannot do exactly. */
int model_load(const struct model_options *o, struct model **ret, struct err *e);
void model_free(struct model *m);

const struct model_info *model_info(const struct model *m);
const struct tokenizer *model_tokenizer(const struct model *m);

/* Its chat template (the one for tools, where it has such) and the special tokens that templates
 * see (bos_token ...), an object; both live as long as the model. For `rollgate render`. */
const struct template *model_template(const struct model *m, bool tools);
const struct json *model_special(const struct model *m);

/* Reports whether model_suffix also renders the history, because the template refuses stand-ins for
 * it. */
bool model_renders_all(const struct model *m);

/* Whether the id is one of the tokenizer's special tokens or a stop id. */
bool model_is_special(const struct model *m, int32_t id);

/* Results of random conversations, whose suffixes are compared with the whole chat's rendering. */
struct model_trials {
    size_t made;
    size_t same;    /* the whole chat ends with the suffix */
    size_t differ;  /* it does not: the text would be wrong */
    size_t leaked;  /* stand-ins would be in the prompt: such a call fails with 500 */
    size_t failed;  /* no suffix can be made: such a call renders the whole chat */
    size_t refused; /* the template refuses the chat itself */
};

/* Makes n of them; `first` gets the first one that is not the same, or stays as it is. */
void model_try(const struct model *m, uint64_t seed, size_t n, struct model_trials *ret,
               struct buf *first);

/* Writes the report of `rollgate check`: the model's files, the results of probing the template,
 * what is refused or ignored. Appends lines of text. */
void model_report(const struct model *m, struct buf *out);

/* Appends the verdict for a training run as one line without its end. True if the model is ready as
 * it is; false if the line has a reservation. */
bool model_judge(const struct model *m, struct buf *out);

/* Appends a prompt with two pictures, as collapsed ids, that ends in two tokens where the tokenizer
 * would write one. Its length shows how an engine treats both. -1: there is no such prompt. */
int model_vision_sample(const struct model *m, struct token_vec *ids);

/* Working memory of one thread. Memory beyond some megabytes is freed at the end of the call that
 * used it. */
struct model_scratch *model_scratch_new(const struct model *m);
void model_scratch_free(struct model_scratch *s);

/* Counts the memory of its renderings in `sum` too, which is the caller's (struct arena's sum). */
void model_scratch_count(struct model_scratch *s, atomic_size_t *sum);

/* Keeps repeated renderings from now on. Only for a model that does not change, so not while it is
 * probed. */
void model_scratch_remember(struct model_scratch *s);

/* Limits prompts from now on: if its bytes alone make more tokens than max_ids, a prompt fails with
 * ERR_CONTEXT_LENGTH before it is encoded. 0: no limit. */
void model_scratch_limit(struct model_scratch *s, uint32_t max_ids);

/* Whether model_suffix compares its text with the whole chat's rendering, which costs the history:
 * callers do so every so often. */
void model_scratch_audit(struct model_scratch *s, bool audit);

/* Renders the whole chat with the generation prompt, encodes once; appends to ids. */
int model_prompt(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 struct token_vec *ids, struct err *e);

/* Renders the whole chat WITHOUT generation prompt and encodes; for the drift audit. */
int model_canonical(const struct model *m, struct model_scratch *s, const struct chat *chat,
                    struct token_vec *ids, struct err *e);

/* Renders and encodes in steps, for long chats. The first call appends the rendering to `text`.
 * Each further one appends the ids of the next step: 1 after the last, 0 if more remain, -1. *at
 * starts at 0. */
int model_canonical_text(const struct model *m, struct model_scratch *s, const struct chat *chat,
                         struct buf *text, struct err *e);
int model_canonical_step(struct model_scratch *s, struct str text, size_t *at,
                         struct token_vec *ids, struct err *e);

/* How the checkpoint that is built on ended. */
struct model_tail {
    struct token_span last; /* its last ids; only the last one is used */
    bool cut;               /* the turn did not end at one of the model's stop ids */
};

/* Result of comparing a suffix with the whole chat's rendering. */
enum model_audit {
    MODEL_AUDIT_NONE, /* not compared, or the template refuses the whole chat */
    MODEL_AUDIT_SAME,
    MODEL_AUDIT_DIFFERS, /* the scratch renders whole chats from now on where that helps */
};

struct model_suffix {
    struct token_vec ids; /* to append to checkpoint ids after trimming; caller's (vec_done) */
    uint32_t trim;        /* drop this many of the checkpoint's last ids first (0 or 1) */
    uint32_t close;       /* how many of ids close the assistant turn (mask 0) */
    bool rewrites; /* the template would render the covered messages differently now; ids is then
                      the append-only continuation of a stand-in turn */
    enum model_audit audit;
};

/*
 * Given a checkpoint and new messages, which ids follow? chat holds all messages. The first
 * `covered` of them are inside the checkpoint, and the last covered one is an assistant turn that
 * the model wrote. ids: close of that turn + rendering of messages[covered..] + generation prompt.
 * With covered == n nothing but the close and the generation prompt follows. Cost depends on the
 * new messages only, not on the history, unless model_renders_all. The caller decides by
 * --on-template-rewrite what to do when ret->rewrites. ERR_PROMPT_LEAK: a stand-in would be in ids;
 * nothing may be sent.
 */
int model_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 size_t covered, const struct model_tail *tail, struct model_suffix *ret,
                 struct err *e);

#endif
