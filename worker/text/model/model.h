/*
 * struct model: a loaded model folder: tokenizer, chat template, turn boundaries, and the parsers
 * for its answers. The supervisor loads it before the fork. It never changes afterwards, so all
 * workers share its pages. Data that must be written while using it (encoder cache, template arena)
 * is in struct model_scratch, one for each thread.
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
struct arena;
struct json;
struct model;
struct model_scratch;
struct template;
struct tokenizer;
struct vision;

/* All strings are borrowed for the call. NULL or empty means "from the folder" or "detect". */
struct model_options {
    const char *dir; /* NULL: the built-in byte tokenizer with a ChatML/Hermes template */
    const char *chat_template_file;
    const char *served_name; /* default: last segment of the folder's path, or "rollgate-builtin" */
    const char *tool_parser;
    const char *reasoning_parser;
    const char *tito_family;
    const char *tool_images; /* where prompts show the pictures in tools' results: "auto", "inline",
                                "user" */
    uint32_t context_length; /* 0: from config.json / tokenizer_config.json */
};

/* Hashes that a stored session compares before it continues with a model: whether ids mean the same
 * (tokenizer), where turns begin and end (special tokens and stop ids), how messages are written
 * (template). Each is the same on all machines and versions; 0: unknown. */
struct model_fingerprint {
    uint64_t tokenizer, special, template;
};

/* Facts about a loaded model. Strings live as long as the model. */
struct model_info {
    const char *name;
    uint32_t vocab_size;
    uint32_t context_length; /* 0: unknown */
    const int32_t *stop_ids; /* ids that end an assistant turn (eos ids and the turn close) */
    size_t n_stop_ids;
    /* ids between the end of a message and the answer: the rest of the close and the generation
     * prompt */
    const int32_t *lead_ids;
    size_t n_lead_ids;
    const char *tool_parser;
    const char *reasoning_parser;
    const char *family;
    const char *const *append_roles; /* roles that the template can write after an answer,
                                        NULL-terminated; NULL: any */
    /* the template's error for a chat of a user's message; absent: such a chat can be rendered */
    struct str refusal;
    bool append_only;   /* the template never rewrites earlier turns */
    bool content_lists; /* the template handles content as a list of parts */
    bool names;         /* the template writes the `name` of a user's or a system's message */
    /* how many tokens pictures have; NULL: the model reads text only */
    const struct vision *vision;
    /* "inline", "user"; NULL: the template shows no pictures of tools' results */
    const char *tool_images;
    uint32_t moe_layers; /* routed experts: rows x layers x topk; 0: unknown */
    uint32_t moe_topk;
    uint32_t layers;       /* layers of the model; 0: unknown */
    uint32_t indexer_topk; /* positions that an indexer chooses for each position; 0: no indexer */
    struct model_fingerprint fingerprint;
};

/* Loads a folder (or the built-in model). Returns -1 with e naming the file or setting if the model
 * cannot be handled exactly. */
int model_load(const struct model_options *o, struct model **ret, struct err *e);
void model_free(struct model *m);

const struct model_info *model_info(const struct model *m);
const struct tokenizer *model_tokenizer(const struct model *m);

/* Return the chat template (for tools, if the model has one for them) and an object with the
 * special tokens that templates can read (bos_token ...). Both live as long as the model. For
 * `rollgate render`. */
const struct template *model_template(const struct model *m, bool tools);
const struct json *model_special(const struct model *m);

/* Returns what is odd about the folder, one sentence a line, for the log of the start. */
struct str model_warnings(const struct model *m);

/* Reports whether model_suffix also renders the history, because the template refuses stand-ins for
 * it. */
bool model_renders_all(const struct model *m);

/* Reports whether a rendering has taken much longer than its text lets expect, or whether suffixes
 * have needed the whole chat: then helpers render short texts, too. */
bool model_is_slow(const struct model *m);

/* Reports whether the id is one of the tokenizer's special tokens or a stop id. */
bool model_is_special(const struct model *m, int32_t id);

/* Counts of random conversations, whose suffixes are compared with the rendering of the whole
 * chat. */
struct model_trials {
    size_t made;
    size_t same;    /* the whole chat ends with the suffix */
    size_t differ;  /* the whole chat does not: the suffix would be wrong */
    size_t leaked;  /* stand-ins would be in the prompt: such a call fails with 500 */
    size_t failed;  /* no suffix can be made: such a call renders the whole chat */
    size_t refused; /* the template refuses the chat itself */
};

/* Makes n random conversations. `first` gets the first one that is not the same, or is not
 * changed. */
void model_try(const struct model *m, uint64_t seed, size_t n, struct model_trials *ret,
               struct buf *first);

/* Writes the report of `rollgate check`: the model's files, the results of probing the template,
 * what is refused or ignored. Appends lines of text. */
void model_report(const struct model *m, struct buf *out);

/* Appends the verdict for a training run as one line without a line feed. Returns true if the model
 * is ready as it is; false if the line has a reservation. */
bool model_judge(const struct model *m, struct buf *out);

/* Appends a prompt with two pictures, as collapsed ids. It ends in two tokens for text that the
 * tokenizer would write as one. Its length in an engine shows how the engine treats both. Returns
 * -1 if no such prompt exists. */
int model_vision_sample(const struct model *m, struct token_vec *ids);

/* Working memory of one thread. Memory beyond some megabytes is freed at the end of the call that
 * used it. */
struct model_scratch *model_scratch_new(const struct model *m);
void model_scratch_free(struct model_scratch *s);

/* Adds the memory of its renderings also to `sum`, which the caller owns (struct arena's sum). */
void model_scratch_count(struct model_scratch *s, atomic_size_t *sum);

/* Remembers repeated renderings from now on. Only for a model that does not change, so not while it
 * is probed. */
void model_scratch_remember(struct model_scratch *s);

/* Limits prompts from now on. If the bytes of a prompt alone show that it has more than max_ids
 * tokens, it fails with ERR_CONTEXT_LENGTH before it is encoded. 0: no limit. */
void model_scratch_limit(struct model_scratch *s, uint32_t max_ids);

/* Sets whether model_suffix compares its text with the rendering of the whole chat. The comparison
 * costs as much as the history is long, so callers do it only for some calls. */
void model_scratch_audit(struct model_scratch *s, bool audit);

/* Renders the whole chat with the generation prompt, encodes it at once, and appends the ids. */
int model_prompt(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 struct token_vec *ids, struct err *e);

/* Renders the whole chat without the generation prompt and encodes it. For the drift audit. */
int model_canonical(const struct model *m, struct model_scratch *s, const struct chat *chat,
                    struct token_vec *ids, struct err *e);

/* Renders and encodes a long chat in steps. The first call appends the rendering to `text`. Each
 * further one appends the ids of the next step. Returns 1 after the last step, 0 if more remain, -1
 * on error. *at starts at 0. */
int model_canonical_text(const struct model *m, struct model_scratch *s, const struct chat *chat,
                         struct buf *text, struct err *e);
int model_canonical_step(struct model_scratch *s, struct str text, size_t *at,
                         struct token_vec *ids, struct err *e);

/* The end of the checkpoint that a suffix continues. */
struct model_tail {
    struct token_span last; /* last ids of the checkpoint, of which only the last one is used */
    bool cut;               /* the turn did not end at one of the model's stop ids */
    struct str added; /* text with which the last covered message ends, and which the ids lack */
};

/* Reports whether the ids of an answer end with the stop string, which may end within the last one,
 * and ids of a text alone can follow them. *ret_after: the last id's text after the stop string, in
 * the arena. */
bool model_ends_at(const struct model *m, struct token_span last, struct str stop, struct arena *a,
                   struct str *ret_after);

/* Result of comparing a suffix with the rendering of the whole chat. */
enum model_audit {
    MODEL_AUDIT_NONE, /* not compared, or the template refuses the whole chat */
    MODEL_AUDIT_SAME,
    MODEL_AUDIT_DIFFERS, /* where that helps, the scratch renders whole chats from now on */
};

struct model_suffix {
    /* ids to append to the checkpoint after trimming; the caller frees them (vec_done) */
    struct token_vec ids;
    uint32_t trim;  /* number of the checkpoint's last ids to drop first (0 or 1) */
    uint32_t close; /* number of ids that close the assistant turn (mask 0) */
    /* the template would render the covered messages differently now; ids continue a stand-in turn
     * append-only */
    bool rewrites;
    enum model_audit audit;
};

/*
 * Computes the ids that follow a checkpoint when messages are added. chat has all messages. The
 * first `covered` of them are inside the checkpoint, and the last covered one is an assistant turn
 * that the model wrote. The ids are: the text that was added to that turn, its close, the rendering
 * of messages[covered..], the generation prompt. If covered == n, only the close and the generation
 * prompt follow. The cost depends on the new messages only, not on the history, unless
 * model_renders_all. If ret->rewrites is set, the caller acts by --on-template-rewrite.
 * ERR_PROMPT_LEAK: a stand-in would be in ids; nothing may be sent.
 */
int model_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 size_t covered, const struct model_tail *tail, struct model_suffix *ret,
                 struct err *e);

#endif
