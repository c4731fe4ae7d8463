/*
 * Shared by the files of worker/text/model: the loaded model, its scratch, and rendering.
 */
#ifndef RG_MODEL_MODEL_INTERNAL_H
#define RG_MODEL_MODEL_INTERNAL_H

#include "common/base/buf.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"
#include "worker/text/model/model_family.h"
#include "worker/text/template/template.h"
#include "worker/text/tokens/tokenizer.h"

/* An id at which generation stops. */
struct stop {
    int32_t id;
    struct str text; /* text as the tokenizer writes it */
    /* the id also begins the next turn (GLM's <|user|>), so it is not part of the answer */
    bool opener;
};

/* Facts about the template, found by probing. */
struct boundaries {
    bool renders; /* a stand-in conversation can be rendered */
    /* the template has the role; otherwise developer messages become system messages */
    bool developer;
    bool needs_system;    /* the template renders only after a system message */
    bool needs_tools;     /* the template renders only with tools */
    bool tool_turns;      /* the template renders assistant calls and tool results */
    bool tools_in_suffix; /* tool definitions are (also) written after earlier turns */
    /* the text after an answer depends on the number of turns, so no stand-in is possible */
    bool counts_turns;
    bool system_in_suffix; /* the system message is written after earlier turns */
    bool append_plain;     /* answer, then user: the text before is not rewritten */
    bool append_tools;     /* call, then result: the text before is not rewritten */
    /* call with reasoning_content, then result: the text before is not rewritten */
    bool append_thought_call;
    /* answer with reasoning_content, then user: the text before is not rewritten */
    bool append_thought;
    bool append_late; /* answer, then a system message: the text before is not rewritten */
    bool roles[5];    /* roles that can be appended: tool user system developer assistant */
    bool wraps[5];    /* by role: a text is shown only if it is a list of parts */
    bool hides[5];    /* by role: no text is shown */
    const char *role_names[6]; /* roles that can be appended, NULL-terminated */
    /* texts that are encoded one by one are decoded as one; not if each begins with a blank */
    bool joins_texts;
    struct str generation_prompt;
    struct str close; /* text between an answer's content and the next turn */
};

/* The order of roles in boundary_roles and in the arrays above. */
enum { ROLE_TOOL, ROLE_USER, ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_ASSISTANT };

extern const char *const boundary_roles[5];

/* Reports whether the generation prompt opens a thought, so that every answer has one. */
bool boundaries_think(const struct boundaries *b);

/* Length of the guard inside a text that spells a picture's token, while the text is rendered. A
 * guard is digits, which no template changes. */
enum { MODEL_GUARD_LEN = 16 };

enum { MODEL_MARK_LEN = 9 }; /* some templates accept only call ids of nine alphanumerics */

/* Limits of renderings while a model is loaded: many short chats. The first one that exceeds its
 * budget ends the loading. */
struct model_trial {
    bool failed;
    struct err cause;
};

/* What renderings have shown about the template, for all threads. */
struct model_learned {
    atomic_bool distrusts; /* model_distrusts */
    atomic_bool slow;      /* a rendering took much longer than its text lets expect */
};

struct model {
    struct arena arena;
    struct model_trial *trial;     /* NULL after loading */
    char mark[MODEL_MARK_LEN + 1]; /* part of every stand-in (standin.h) */
    char guard[MODEL_GUARD_LEN + 1];
    struct model_info info;
    struct vision vision;
    struct str media_texts[4]; /* texts of the tokens in vision.banned */
    bool tool_images_apart;    /* the chosen form differs from the template's own */
    bool tool_images_unlike;   /* pictures of a tool are shown differently from those of a user */
    struct tokenizer *tokenizer;
    struct template *template_default;
    struct template *template_tools; /* template named "tool_use"; NULL: the default is used */
    /* object with the special tokens that templates can read, such as bos_token */
    struct json special;
    const struct model_family *family;
    const char *pin; /* template variable that keeps the template append-only, or NULL */
    bool pin_value;
    bool family_forced;  /* --tito-family is set, so conflicting kwargs are errors */
    uint8_t *is_special; /* by id, up to n_known; higher ids are not special */
    size_t n_known;
    struct stop *stops;
    size_t n_stops;
    struct boundaries boundaries;
    struct str tool_why, reasoning_why; /* why these parsers were chosen, as a text for people */
    struct buf notes;                   /* notes for `rollgate check`, one sentence a line */
    struct buf warnings;                /* like `notes`, and for the log of the start */
    struct model_learned *learned;
};

struct model_scratch {
    const struct model *model;
    struct arena arena;
    struct encoder *encoder;
    struct buf a, b, full;     /* buffers for rendered texts */
    struct standin_memo *memo; /* remembered renderings; NULL: the model may still change */
    struct token_vec ids;
    uint32_t max_ids; /* largest number of ids in a prompt; 0: no limit */
    time_t seconds;   /* time that templates see, the same for all renderings of a suffix; 0: now */
    bool audits;      /* suffixes are compared with the rendering of the whole chat */
};

/* Reports whether an audit found that suffixes of this template need the whole chat. */
static inline bool model_distrusts(const struct model *m)
{
    return atomic_load_explicit(&m->learned->distrusts, memory_order_relaxed);
}

static inline void model_distrust(const struct model *m, bool on)
{
    atomic_store_explicit(&m->learned->distrusts, on, memory_order_relaxed);
}

/* Bytes of memory that each text and list of a scratch may keep between calls. */
enum { MODEL_SCRATCH_KEEP = 1 << 20 };

/* Frees the arena and long buffers at the end of a function that makes a prompt. Its callers keep
 * nothing that is in the scratch. */
void scratch_release(struct model_scratch *s);

/* Checks a text before it is encoded for a prompt; every such text must pass here. Returns -1 with
 * ERR_PROMPT_LEAK if it contains the model's mark, or ERR_CONTEXT_LENGTH if its bytes show that it
 * cannot fit. */
int may_leave(const struct model_scratch *s, struct str text, struct err *e);

/* Reports whether the gateway itself sets this variable of the template. */
bool model_sets_variable(struct str name);

/* Input of one rendering: a list of normalised messages (struct json objects). */
struct rendering {
    const struct json *messages;
    uint32_t n;
    const struct json *tools; /* NULL: no tools */
    const struct json *kwargs;
    bool generation_prompt;
    time_t seconds; /* time that the template sees; 0: now */
};

/* Appends the rendered text. The arena only grows; the caller resets it. */
int model_text(const struct model *m, struct arena *a, const struct rendering *in, struct buf *out,
               struct err *e);

/* Names of the special tokens that every template can read. */
extern const char *const special_names[7];

/* Returns a token that is given as text or as {"content": text}; absent for other values. */
struct str token_text(const struct json *v);

/* Adds a stop id, unless the model has it. */
void model_add_stop(struct model *m, int32_t id);

/* Finds boundaries, stop ids and content_lists. A template that cannot be probed is reported, not
 * refused: its calls render the whole chat. */
void model_probe(struct model *m, struct model_scratch *s);

/* Probes the turns of a model again after its template variables have changed. Updates boundaries,
 * append_roles and append_only. For copies made for trials: stop ids do not change. */
void model_probe_again(struct model *m, struct model_scratch *s);

/* --- small JSON values, in the arena --- */
struct json make_object(struct arena *a, uint32_t n);
/* the object must have space for the member */
void object_put(struct json *object, const char *key, struct json value);
struct json make_text(struct arena *a, const char *key1, const char *value1, const char *key2,
                      const char *value2); /* {key1: value1, key2: value2} */
struct json copy_with(struct arena *a, const struct json *from, const char *key,
                      struct json value); /* returns a shallow copy with a further member `key` */

#endif
