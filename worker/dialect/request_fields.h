/*
 * Reading request bodies: typed fields with errors that name them, and building the normalised
 * JSON values of a struct chat. Shared by the dialects; pure. Absent and null fields leave *ret as
 * it was, unless said otherwise. Errors are ERR_INVALID with e->param = the field's path.
 */
#ifndef RG_DIALECT_REQUEST_FIELDS_H
#define RG_DIALECT_REQUEST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "worker/dialect/writers.h"

struct arena;
struct chat_request;

enum { FIELD_PATH_MAX = 64 };

int field_bool(const struct json *o, const char *name, bool *ret, struct err *e);
int field_str(const struct json *o, const char *name, struct str *ret, struct err *e);
int field_u32(const struct json *o, const char *name, uint32_t min, uint32_t max, uint32_t *ret,
              struct err *e);
/* The member itself when it is of that kind; *ret NULL when absent or null. */
int field_kind(const struct json *o, const char *name, enum json_kind kind, const struct json **ret,
               struct err *e);

/* An id or a name of a call may have REQUEST_CALL_TEXT_MAX bytes: the error of one that has more.
 */
int field_call_text(const char *path, struct str text, struct err *e);

/* --- building --- */

struct json json_message(struct arena *a, const char *role, struct json content);

/* --- parts shared by the dialects --- */

/* Fills defaults and what every dialect reads alike: model, stream, labels and retry headers. */
int request_begin(struct arena *a, const struct json *body, const struct dialect_headers *headers,
                  struct chat_request *ret, struct err *e);

/* Takes the named sampling fields over, checked, into sampling and sampling_given. */
int request_sampling(struct arena *a, const struct json *body, const char *const *names, size_t n,
                     struct chat_request *req, struct err *e);
/* A response_format in Chat Completions' form; text needs nothing. */
int request_format(struct arena *a, const struct json *format, const char *path,
                   struct chat_request *req, struct err *e);

/* Reads a format whose schema is next to its type, as in Responses and Messages. */
int request_flat_format(struct arena *a, const struct json *format, const char *path,
                        struct chat_request *req, struct err *e);

/* chat_template_kwargs and the reasoning effort, which becomes one of them. */
int request_kwargs(struct arena *a, const struct json *body, const struct json *effort,
                   const char *effort_path, struct chat_request *req, struct err *e);

/* Reads thinking {type, budget_tokens} and enable_thinking, in all known forms; the budget becomes
 * max_thinking_tokens. Call it after request_sampling. */
int request_thinking(struct arena *a, const struct json *body, struct chat_request *req,
                     struct err *e);

/* Text as string or list of parts. Lists: *ret is a list of {"type":"text"} and of pictures, which
 * image_parts_normalise must see, or, with `joined`, one string without pictures. Null is the empty
 * string. Other parts are refused by name. */
int content_text(struct arena *a, const struct json *v, const char *path, bool joined,
                 struct json *ret, struct err *e);

/* A list of one text as that text; anything else as it is. */
struct json content_alone(struct json list);

/* Normalised tools {type: function}, a list that grows and finds its names without a walk. */
struct tool_list {
    struct json all;
    struct lookup names; /* -> place in all */
};

struct tool_list tool_list_in(struct arena *a);
/* Adds a tool unless the list has one of that name. parameters may be NULL. */
void tools_add(struct tool_list *tools, struct str name, const struct json *description,
               const struct json *parameters);
/* A tool whose input is one text. */
void tools_add_freeform(struct tool_list *tools, struct str name, const struct json *description);
/* Wraps the text of such a tool's call into arguments, as the model writes it: {"input": TEXT}. */
struct str freeform_arguments(struct arena *a, const struct json *input);
/* Returns the text inside such arguments, or the arguments if they have another form. */
struct str freeform_input(struct arena *a, struct str arguments);
/* A tool as the client sent it, whether its name is there already or not. */
void tools_add_as_sent(struct tool_list *tools, struct str name, struct json tool);
/* The tool of that name, or NULL. */
const struct json *tools_get(const struct tool_list *tools, struct str name);

/* CHOICE_FUNCTION / CHOICE_REQUIRED need tools: the last check of tool_choice. */
int request_choice_fits(const struct chat_request *req, const char *path, struct err *e);

/* {"mode": auto | required, "tools": [...]}: a choice among some of the tools, those of kinds that
 * the request's tools do not have left out. */
int request_allowed(struct arena *a, const struct json *choice, const char *path,
                    struct chat_request *req, struct err *e);

/* A tool call in normalised form; id may be absent. */
struct json tool_call_json(struct arena *a, struct str id, struct str name, struct str arguments);

/* An assistant turn that a client spells in several blocks or items. */
struct spoken {
    struct grown text, thought;
    struct json calls;
    bool any; /* some block or item was there */
};

static inline void spoken_init(struct spoken *s)
{
    *s = (struct spoken){.calls = {.kind = JSON_ARRAY}};
}

/* Adds the turn to messages, if there is one, and starts again. */
void spoken_flush(struct arena *a, struct spoken *s, struct json *messages);

/* Formats a path for errors. */
const char *path_at(char out[FIELD_PATH_MAX], const char *fmt, ...) RG_PRINTF(2, 3);

/* Marks the request as a compaction, whichever agent sent it. */
void request_compacts(struct arena *a, struct chat_request *req);

#endif
