/*
 * struct chat: one conversation in the form that every layer above the dialects uses. It borrows
 * its JSON values, usually from a call's arena.
 *
 * `messages` is an array of objects in normalised form, whatever dialect they came in:
 *   role              "system" | "developer" | "user" | "assistant" | "tool" | other text
 *   content           string, or array of {"type":"text","text":...} parts and of pictures
 *                     (images.h; parts of other types were refused by the dialect); assistant:
 *                     string, never null
 *   reasoning_content string, optional, assistant only
 *   tool_calls        array of {"id","type":"function","function":{"name","arguments"}}, optional,
 *                     never empty; `arguments` is a STRING as the wire has it (the model layer
 *                     turns it into an object for the template)
 *   tool_call_id      string, role tool
 *   name              string, optional
 *
 * `tools` is an array in OpenAI form ({"type":"function","function":{...}}) as the client sent it,
 * or NULL. `kwargs` is an object (effective chat_template_kwargs) or NULL.
 */
#ifndef RG_REQUEST_CHAT_H
#define RG_REQUEST_CHAT_H

#include <stdbool.h>
#include <stdint.h>

struct json;

/* Messages that an earlier request of the same reader had. A stretch is what one reading recorded;
 * each reading has a number of its own. A stretch ends before message `end`. The first one begins
 * at `from`, each other at the end of the one before. If two requests have a message of the same
 * reading at the same position, that message and all before it are equal. */
struct chat_stretch {
    uint64_t reading;
    uint32_t end;
};

/* number of stretches kept, the last ones. What a session derived from a message belongs to one of
 * these */
enum { CHAT_STRETCHES = 4 };

struct chat_known {
    /* the array for which the stretches are valid; NULL: nothing is known */
    const struct json *messages;
    uint32_t from, n;
    struct chat_stretch at[CHAT_STRETCHES];
};

struct chat {
    const struct json *messages;
    const struct json *tools;
    const struct json *kwargs;
    bool tools_hashed; /* tools_hash is set: long_tools_hash of tools */
    uint64_t tools_hash[2];
    struct chat_known known;
};

/* Tools with more bytes (json_text_bytes) are long. */
enum { LONG_TOOLS_LEAST = 64 << 10 };

/* Computes str_hash128 of the tools' JSON if they are long, otherwise 0, 0. Comparing values reads
 * each of them, and a request may have millions. So the request's reader, in a helper thread if its
 * body is long, hashes them once, and the loop compares the hashes. Long tools are equal if their
 * texts without white space are. `tools` may be NULL. */
void long_tools_hash(const struct json *tools, uint64_t ret[2]);

#endif
