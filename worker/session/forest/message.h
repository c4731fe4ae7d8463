/*
 * struct message: one chat message, prepared for comparing under a matcher (docs/sessions.md,
 * section 2). It borrows from the JSON value from which it was read. Texts that must be joined
 * (lists of parts, --ignore-cch) are made in the given arena. Only comparisons use the prepared
 * form; `json` is what is stored, sent or exported.
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

/* Arguments of one message's tool calls are compared as text, whatever the matcher, if they have
 * more bytes than this, 16 counted for each call, or more than about 10,000 values. */
enum { MESSAGE_ARGS_MAX = 64 << 10 };

struct matcher {
    enum matcher_kind kind;
    bool ignore_cch;
    size_t *parsed; /* grows by the bytes of arguments that are parsed as values; or NULL */
};

/* Finds a matcher by its name ("canonical" ...). Returns -1 for unknown names. */
int matcher_from_name(struct str name, enum matcher_kind *ret);
const char *matcher_name(enum matcher_kind kind);

struct message {
    const struct json *json;
    struct str role, content, reasoning, name;
    const struct json *list;  /* content that stays a list under this matcher, or NULL */
    const struct json *calls; /* non-empty array or NULL */
    /* message_hash and message_brief, if they were computed before; else 0 */
    uint64_t hash, brief;
};

void message_read(struct message *m, const struct json *json, const struct matcher *mt,
                  struct arena *a);

bool message_equal(const struct message *a, const struct message *b, const struct matcher *mt);

/* Returns the hash of a message: m->hash if it is set. Equal messages have equal hashes. Stable
 * across processes. */
uint64_t message_hash(const struct message *m, const struct matcher *mt);

/* Like message_hash, but uses only the ends and lengths of long texts: a first comparison that
 * costs no more for texts of megabytes. */
uint64_t message_brief(const struct message *m, const struct matcher *mt);

/* Reports whether the message may have such texts. */
bool message_is_long(const struct message *m);

/* Reports whether a part of its content is a picture. */
bool message_shows_images(const struct message *m);

/* The arguments of a message that is compared with several others, parsed once. Zeroed at first;
 * message_args_done frees it. */
struct message_args {
    bool read;
    const struct json **values; /* own */
    struct arena arena;
};

/* Frees the arguments. */
void message_args_done(struct message_args *r);

/* --- echoes ---
 *
 * An echo is an assistant message that was generated here (`stored`), in the form in which some
 * clients send it back. Only matcher canonical accepts echoes. Echoes have equal echo hashes,
 * except if tool calls are renamed. They are found by ids: the same number of tool calls, all under
 * their own ids, with other names or arguments, or without the text, or with the thought as text.
 * `own` is the message with the ids that were issued: there may be several that differ in these and
 * in their thoughts. */

/* Returns how many of m's leading tool calls have own's ids and, unless `renamed`, own's names.
 * Returns 0 if own has a different number of calls. */
uint32_t message_ids_alike(const struct json *own, const struct message *m, bool renamed);

/* What m contains besides its tool calls: the same as `stored` or nothing; perhaps the thought; or
 * something else. Computed once for all messages as which `stored` was issued. *ret_bare is m's
 * text, trimmed. */
enum message_beside { BESIDE_SAME, BESIDE_THOUGHT, BESIDE_OTHER };
enum message_beside message_beside(const struct message *stored, const struct message *m,
                                   const struct matcher *mt, struct str *ret_bare);

/* Reports whether the message is an echo of own, given the result above. *went grows by the bytes
 * that were compared. */
bool message_beside_is(enum message_beside beside, const struct json *own, struct str bare,
                       size_t *went);

/* Compares by words: ignores white space around the text, or a <think> section before it. `args` is
 * of `m`. */
bool message_echoes_words(const struct message *stored, const struct message *m,
                          const struct matcher *mt, struct message_args *args);
uint64_t message_echo_hash(const struct message *m);

/* The first field in which two unequal messages differ, and both its texts (borrowed, or made in
 * the arena), cut to start shortly before the first different byte. */
struct message_diff {
    const char *field;
    struct str stored, request;
};

void message_diff(const struct message *stored, const struct message *request,
                  const struct matcher *mt, struct arena *a, struct message_diff *ret);

/* Describes the difference of two values (NULL: absent). Of long lists (64 KiB together) it names
 * the first items that differ; a long value becomes "". Reads at most about 512 KiB. */
void message_value_diff(const char *field, const struct json *stored, const struct json *request,
                        struct arena *a, struct message_diff *ret);

/* Returns a hash that is equal for values that json_equal calls equal. */
uint64_t message_value_hash(const struct json *v);

/* Reports whether a stored message has members that an upstream has signed (session_plan_signed).
 * Accepts NULL. */
bool message_is_signed(const struct json *message);

/* Copies the value whose JSON is `text`. Returns NULL if the text is not JSON. */
const struct json *message_copy_text(struct arena *a, struct str text);

/* Returns the client's message, which begins with the answer's text, with the answer's thought if
 * it has none. Borrows from both. */
struct json message_with_thought(const struct json *said, const struct json *answer,
                                 struct arena *a);

#endif
