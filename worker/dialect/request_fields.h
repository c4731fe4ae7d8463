/*
 * Reads request bodies: typed fields, and parts that all dialects share. Builds the normalised JSON
 * values of a struct chat. Pure. Absent and null fields leave *ret unchanged, unless a comment says
 * otherwise. Functions return 0, or -1 with ERR_INVALID; then e->param is the field's path.
 */
#ifndef RG_DIALECT_REQUEST_FIELDS_H
#define RG_DIALECT_REQUEST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "worker/dialect/writers.h"

struct chat_request;

enum { FIELD_PATH_MAX = 64 };

/* Read a member of object o with a type and, for numbers, a range. Keep *ret if it is absent or
 * null. */
int field_bool(const struct json *o, const char *name, bool *ret, struct err *e);
int field_str(const struct json *o, const char *name, struct str *ret, struct err *e);
int field_u32(const struct json *o, const char *name, uint32_t min, uint32_t max, uint32_t *ret,
              struct err *e);
/* Sets *ret to the member if it is of that kind, or to NULL if it is absent or null. */
int field_kind(const struct json *o, const char *name, enum json_kind kind, const struct json **ret,
               struct err *e);

/* Sets the error for a call's id or name of more than REQUEST_CALL_TEXT_MAX bytes. Returns -1. */
int field_call_text(const char *path, struct str text, struct err *e);

/* --- building --- */

/* Makes a normalised message: {"role", "content"}. Further members follow. */
struct json json_message(struct arena *a, struct str role, struct json content);

/* --- parts shared by the dialects --- */

/* Fills defaults and the members that all dialects share: model, stream, user, metadata, labels and
 * retry headers. */
int request_begin(struct arena *a, const struct json *body, const struct dialect_headers *headers,
                  struct chat_request *ret, struct err *e);

/* Checks the sampling members of the dialect (IN_...) and stores them in sampling and
 * sampling_given. */
int request_sampling(struct arena *a, const struct json *body, unsigned dialect,
                     struct chat_request *req, struct err *e);
/* Reads a response_format in the form of Chat Completions. The type "text" sets nothing. */
int request_format(struct arena *a, const struct json *format, const char *path,
                   struct chat_request *req, struct err *e);

/* Reads a format whose schema is next to its type, as in Responses and Messages. */
int request_flat_format(struct arena *a, const struct json *format, const char *path,
                        struct chat_request *req, struct err *e);

/* Reads chat_template_kwargs, and adds the reasoning effort to them. */
int request_kwargs(struct arena *a, const struct json *body, const struct json *effort,
                   const char *effort_path, struct chat_request *req, struct err *e);

/* Reads thinking {type, budget_tokens} and enable_thinking. The budget becomes max_thinking_tokens.
 * Call it after request_sampling. */
int request_thinking(struct arena *a, const struct json *body, struct chat_request *req,
                     struct err *e);

/* Reads text that is a string or a list of content parts. A list becomes a list of {"type":"text"}
 * and of images, which image_parts_normalise must process. With `joined`, a list becomes one string
 * and may have no images. Null becomes the empty string. Other types of parts fail by name. */
int content_text(struct arena *a, const struct json *v, const char *path, bool joined,
                 struct json *ret, struct err *e);

/* Returns the text if the list is a single text, otherwise the list unchanged. */
struct json content_alone(struct json list);

/* Normalised tools {type: function}. The list grows, and an index finds tools by name. */
struct tool_list {
    struct json all;
    struct lookup names; /* name -> index in all */
};

/* Makes an empty list whose memory comes from the arena. */
struct tool_list tool_list_in(struct arena *a);
/* Adds a tool, unless the list has one with that name. parameters may be NULL. */
void tools_add(struct tool_list *tools, struct str name, const struct json *description,
               const struct json *parameters);
/* Adds a tool whose input is one text. */
void tools_add_freeform(struct tool_list *tools, struct str name, const struct json *description);
/* Returns the text of a freeform call as the arguments that the model writes: {"input": TEXT}. */
struct str freeform_arguments(struct arena *a, const struct json *input);
/* Returns the text inside such arguments, or the arguments unchanged if they have a different
 * form. */
struct str freeform_input(struct arena *a, struct str arguments);
/* Adds a tool as the client sent it, even if the list has one with that name. */
void tools_add_as_sent(struct tool_list *tools, struct str name, struct json tool);
/* Returns the tool with that name, or NULL. */
const struct json *tools_get(const struct tool_list *tools, struct str name);

/* Checks that the tools that CHOICE_FUNCTION and CHOICE_REQUIRED need exist. Last check of
 * tool_choice. */
int request_choice_fits(const struct chat_request *req, const char *path, struct err *e);

/* Reads a choice among some of the tools: {"mode": auto | required, "tools": [...]}. Tools that the
 * request does not have, or of kinds that it cannot call, are left out. */
int request_allowed(struct arena *a, const struct json *choice, const char *path,
                    struct chat_request *req, struct err *e);

/* Returns a tool call in normalised form. id may be absent. */
struct json tool_call_json(struct arena *a, struct str id, struct str name, struct str arguments);

/* An assistant turn that a client sends as several blocks or items. */
struct spoken {
    struct grown text, thought;
    struct json calls;
    bool any;          /* a block or an item was added */
    struct str answer; /* id of the answer that its items name; absent: none */
    uint32_t text_end; /* index after the last text's item */
};

static inline void spoken_init(struct spoken *s)
{
    *s = (struct spoken){.calls = {.kind = JSON_ARRAY}};
}

/* Adds the text of item `at`. Flushes before if the item before it is a text as well and the items
 * name no answer: an answer has no two texts in sequence. */
void spoken_add_text(struct arena *a, struct spoken *s, struct str text, uint32_t at,
                     struct json *messages);

/* Appends the turn to messages if it is not empty, and resets *s. */
void spoken_flush(struct arena *a, struct spoken *s, struct json *messages);

/* Formats a field's path for errors into `out`, and returns it. Truncates long paths. */
const char *path_at(char out[FIELD_PATH_MAX], const char *fmt, ...) RG_PRINTF(2, 3);

/* Fails with ERR_INVALID about the field at the formatted path: "PATH what". Returns -1. */
int field_fail(struct err *e, const char *what, const char *fmt, ...) RG_PRINTF(3, 4);

/* Marks the request as a compaction in its label, for any agent. */
void request_compacts(struct arena *a, struct chat_request *req);

#endif
