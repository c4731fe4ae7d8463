/*
 * struct message: one chat message prepared for comparing under a matcher (docs/sessions.md,
 * section 2). It borrows from the JSON value it was read from; texts that must be put together
 * (lists of parts, --ignore-cch) are made in the given arena. What is compared is not what is
 * stored, sent or exported: that stays `json`.
 */
#ifndef RG_SESSION_MESSAGE_H
#define RG_SESSION_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"

struct json;

enum matcher_kind {
    MATCHER_CANONICAL,
    MATCHER_STRICT,
    MATCHER_LOOSE_TOOL_CALL,
    MATCHER_ROLE_CONTENT_ONLY,
    MATCHER_COUNT
};

/* Arguments of one message's calls that take more bytes than this, 16 counted for each call, or
 * that are made of more than some 10,000 values, are compared as text, whatever the matcher. */
enum { MESSAGE_ARGS_MAX = 64 << 10 };

struct matcher {
    enum matcher_kind kind;
    bool ignore_cch;
    size_t *parsed; /* grows by the bytes of arguments that are read as values; or NULL */
};

/* "canonical" ...; -1 for unknown names. */
int matcher_from_name(struct str name, enum matcher_kind *ret);
const char *matcher_name(enum matcher_kind kind);

struct message {
    const struct json *json;
    struct str role, content, reasoning, name;
    const struct json *list;  /* content that stays a list under this matcher, or NULL */
    const struct json *calls; /* non-empty array or NULL */
    uint64_t hash, brief;     /* message_hash and _brief, where they were asked before; else 0 */
};

void message_read(struct message *m, const struct json *json, const struct matcher *mt,
                  struct arena *a);

bool message_equal(const struct message *a, const struct message *b, const struct matcher *mt);

/* Equal messages have equal hashes; m->hash, if it is set. Stable across processes. */
uint64_t message_hash(const struct message *m, const struct matcher *mt);

/* Like message_hash, but of long texts only their ends and lengths: a first comparison, which costs
 * no more for texts of megabytes. */
uint64_t message_brief(const struct message *m, const struct matcher *mt);

/* Whether it may have such texts. */
bool message_is_long(const struct message *m);

/* Whether a part of its content is a picture. */
bool message_shows_images(const struct message *m);

/* The arguments of a message that is compared with several: read once. Zeroed before;
 * message_args_done frees it. */
struct message_args {
    bool read;
    const struct json **values; /* own */
    struct arena arena;
};

/* Frees the arguments. */
void message_args_done(struct message_args *r);

/* Whether an assistant message is `stored`, which was generated here, in the way that some clients
 * send it back. Canonical matcher only. Such messages have equal echo hashes, renamed calls aside.
 * By ids: its tool calls, as many, all under their own ids, with other names or arguments, or
 * beside them no text or the thought. `own` is the message with the ids that were issued: there may
 * be several that differ in those, and in their thoughts. */

/* Returns how many of m's calls, from the first on, have own's ids and, unless `renamed`, own's
 * names. Returns 0 if own has another number of calls. */
uint32_t message_ids_alike(const struct json *own, const struct message *m, bool renamed);

/* What stands beside the calls of m: the same as in `stored`, or nothing; maybe the thought, or
 * something else. Once for all that `stored` was issued as. *ret_bare: m's text, trimmed. */
enum message_beside { BESIDE_SAME, BESIDE_THOUGHT, BESIDE_OTHER };
enum message_beside message_beside(const struct message *stored, const struct message *m,
                                   const struct matcher *mt, struct str *ret_bare);

/* Whether that is an echo of own. *went grows by the bytes that were compared. */
bool message_beside_is(enum message_beside beside, const struct json *own, struct str bare,
                       size_t *went);

/* Compares by words: without white space around its text, or with a <think> section before it.
 * `args` is of `m`. */
bool message_echoes_words(const struct message *stored, const struct message *m,
                          const struct matcher *mt, struct message_args *args);
uint64_t message_echo_hash(const struct message *m);

/* The first field in which two unequal messages differ, and both its texts (borrowed, or made in
 * the arena) cut to start shortly before the first different byte. */
struct message_diff {
    const char *field;
    struct str stored, request;
};

void message_diff(const struct message *stored, const struct message *request,
                  const struct matcher *mt, struct arena *a, struct message_diff *ret);

/* Describes the difference of two values (NULL: absent). Of long lists (64 KiB together) it names
 * the first items that differ, and "" for a long value. Reads no more than some 512 KiB. */
void message_value_diff(const char *field, const struct json *stored, const struct json *request,
                        struct arena *a, struct message_diff *ret);

/* Equal for values that json_equal calls equal. */
uint64_t message_value_hash(const struct json *v);

/* Reports whether a stored message has members of an upstream, which that has signed
 * (session_plan_signed). Accepts NULL. */
bool message_is_signed(const struct json *message);

/* A deep copy into the arena. */
const struct json *message_copy(struct arena *a, const struct json *v);

/* Copies the value whose JSON is `text`; NULL if it is not JSON. */
const struct json *message_copy_text(struct arena *a, struct str text);

#endif
