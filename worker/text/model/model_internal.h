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
    bool opener;     /* it also begins the next turn (GLM's <|user|>): not part of the answer */
};

/* Facts about the template, found by probing. */
struct boundaries {
    bool renders;         /* a stand-in conversation can be rendered at all */
    bool developer;       /* it has that role; else such messages become system ones */
    bool needs_system;    /* renders only after a system message */
    bool needs_tools;     /* only with tools */
    bool tool_turns;      /* assistant calls and tool results can be rendered */
    bool tools_in_suffix; /* tool definitions are (also) written after earlier turns */
    bool counts_turns;    /* the text after an answer depends on the number of turns: no stand-in */
    bool system_in_suffix;    /* the system message is written after earlier turns */
    bool append_plain;        /* answer, then user: nothing before is rewritten */
    bool append_tools;        /* call, then result: nothing before is rewritten */
    bool append_thought_call; /* call with reasoning_content, then result: nothing before is
                                 rewritten */
    bool append_thought; /* answer with reasoning_content, then user: nothing before is rewritten */
    bool append_late;    /* answer, then a system message: nothing before is rewritten */
    bool roles[5];       /* can be appended: tool user system developer assistant */
    bool wraps[5];       /* by role: text is shown only as a list of parts */
    bool hides[5];       /* by role: no text is shown at all */
    const char *role_names[6]; /* roles that can be appended, NULL-ended */
    struct str generation_prompt;
    struct str close; /* text between an answer's content and the next turn */
};

/* The order of a role in boundary_roles and in the arrays above. */
enum { ROLE_TOOL, ROLE_USER, ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_ASSISTANT };

extern const char *const boundary_roles[5];

/* Whether the generation prompt opens a thought, so that no answer is without one. */
bool boundaries_think(const struct boundaries *b);

/* Length of the guard inside a text that spells a picture's token, while the text is rendered:
 * digits, which no template changes. */
enum { MODEL_GUARD_LEN = 16 };

enum { MODEL_MARK_LEN = 9 }; /* some templates take call ids of nine alphanumerics only */

/* Renderings while a model is loaded: many short chats, of which the first that runs over its
 * budget ends the loading. */
struct model_trial {
    bool failed;
    struct err cause;
};

struct model {
    struct arena arena;
    struct model_trial *trial;     /* NULL once the model is loaded */
    char mark[MODEL_MARK_LEN + 1]; /* part of every stand-in (standin.h) */
    char guard[MODEL_GUARD_LEN + 1];
    struct model_info info;
    struct vision vision;
    struct str media_texts[4]; /* texts of vision.banned */
    bool tool_images_apart;    /* the result differs from the template's own way */
    bool tool_images_unlike;   /* the result differs from the template's own way */
    struct tokenizer *tokenizer;
    struct template *template_default;
    struct template *template_tools; /* named "tool_use"; NULL: the default serves */
    struct json special;             /* OBJECT: bos_token ... as the template sees them */
    const struct model_family *family;
    const char *pin; /* template variable that keeps the template append-only, or NULL */
    bool pin_value;
    bool family_forced;  /* by --tito-family: conflicting kwargs are errors */
    uint8_t *is_special; /* by id; n_known of them, the others are not */
    size_t n_known;
    struct stop *stops;
    size_t n_stops;
    struct boundaries boundaries;
    struct str tool_why, reasoning_why; /* why these parsers were chosen, for people */
    struct buf notes;                   /* for `rollgate check`, one sentence a line */
};

struct model_scratch {
    const struct model *model;
    struct arena arena;
    struct encoder *encoder;
    struct buf a, b, full;     /* rendered texts */
    struct standin_memo *memo; /* or NULL: the model may still change */
    struct token_vec ids;
    uint32_t max_ids; /* limit of a prompt's ids; 0: none */
    time_t seconds;   /* the time that templates see, one for all renderings of a suffix; 0: now */
    bool audits;      /* suffixes are compared with the whole chat's rendering */
    bool distrusts;   /* an audit found that this template's suffixes need the whole chat */
};

/* Bytes of memory that each of its texts and lists may keep between calls. */
enum { MODEL_SCRATCH_KEEP = 1 << 20 };

/* Long ones go back, and all of the arena. At the end of what makes a prompt: its callers keep
 * nothing that lies there. */
void scratch_release(struct model_scratch *s);

/* -1 and ERR_PROMPT_LEAK for a text that bears the model's mark, ERR_CONTEXT_LENGTH for one that
 * cannot fit, by its bytes. Every text passes here before it is encoded for a prompt. */
int may_leave(const struct model_scratch *s, struct str text, struct err *e);

/* One rendering: a run of normalised messages (struct json objects). */
struct rendering {
    const struct json *messages;
    uint32_t n;
    const struct json *tools; /* NULL: none */
    const struct json *kwargs;
    bool generation_prompt;
    time_t seconds; /* the time that the template sees; 0: now */
};

/* Appends the rendered text. The arena only grows; the caller resets it. */
int model_text(const struct model *m, struct arena *a, const struct rendering *in, struct buf *out,
               struct err *e);

/* Finds boundaries, stop ids and content_lists; a template that cannot be probed is reported, not
 * refused (its renderings then go through full renders). */
void model_probe(struct model *m, struct model_scratch *s);

/* Probes the turns of a model again after its template variables have changed: updates boundaries,
 * append_roles and append_only. For copies made for trials: stop ids do not change. */
void model_probe_again(struct model *m, struct model_scratch *s);

/* --- small JSON makers, in the arena --- */
struct json make_object(struct arena *a, uint32_t n);
void object_put(struct json *object, const char *key, struct json value); /* room was made */
struct json make_text(struct arena *a, const char *key1, const char *value1, const char *key2,
                      const char *value2); /* {key1: value1, key2: value2} */
struct json copy_with(struct arena *a, const struct json *from, const char *key,
                      struct json value); /* shallow, with another member `key` */

#endif
