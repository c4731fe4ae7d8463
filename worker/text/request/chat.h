/*
 * struct chat: one conversation as every layer above the dialects sees it. All values are JSON
 * values in somebody's arena (a call's, usually); this struct borrows them.
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

/* Which messages a reader of requests has had before. A stretch is what one reading (each has a
 * number of its own) took note of, and ends before message `end`; the first one begins at `from`,
 * each other where the one before it ends. A message that stands under one number at one place
 * twice is the same both times, and so is all before it. */
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

/* What tools are known by where they are long, else 0, 0: str_hash128 of their JSON. Comparing and
 * hashing values looks at each of them, and a request may bring millions: a request's reader, in a
 * helper where its body is long, writes them once, and the loop compares the hashes. So long tools
 * are the same when their text is, spaces aside, as they are not part of the values. `tools` may be
 * NULL. */
void long_tools_hash(const struct json *tools, uint64_t ret[2]);

#endif
