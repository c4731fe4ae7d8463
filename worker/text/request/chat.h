/*
 * struct chat: one conversation as every layer above the dialects sees it. This struct borrows its
 * JSON values, usually from a call's arena.
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

/* The messages that a reader of requests has read before. A stretch is what one reading recorded;
 * each reading has a number of its own. A stretch ends before message `end`. The first one begins
 * at `from`, each other where the one before it ends. If two requests have a message of the same
 * reading at the same position, the message and all before it are equal. */
struct chat_stretch {
    uint64_t reading;
    uint32_t end;
};

enum { CHAT_STRETCHES = 4 }; /* the last ones: what a session found out of a message is of those */

struct chat_known {
    const struct json *messages; /* it holds for this array alone; NULL: nothing is known */
    uint32_t from, n;
    struct chat_stretch at[CHAT_STRETCHES];
};

struct chat {
    const struct json *messages;
    const struct json *tools;
    const struct json *kwargs;
    bool tools_hashed; /* tools_hash is there: long_tools_hash of tools */
    uint64_t tools_hash[2];
    struct chat_known known;
};

/* Tools of more bytes (json_text_bytes) are long. */
enum { LONG_TOOLS_LEAST = 64 << 10 };

/* Computes str_hash128 of the tools' JSON if they are long, otherwise 0, 0. Comparing values reads
 * each of them, and a request may bring millions. So the request's reader, in a helper thread if
 * its body is long, writes them once, and the loop compares the hashes. Long tools are equal if
 * their texts are, without white space. `tools` may be NULL. */
void long_tools_hash(const struct json *tools, uint64_t ret[2]);

#endif
