/* Texts of a list may differ from the thought, which comes from other members. Then the thought
 * becomes one block, with the first signature of a text. */
#include "worker/text/request/thought_blocks.h"

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/codec/json.h"

enum { BLOCKS_MAX = 1024 };

struct str thought_item_seal(const struct json *item)
{
    static const char *const seals[] = {"signature", "data", "encrypted_content",
                                        "thought_signature"};

    for (size_t i = 0; i < ARRAY_LEN(seals); i++) {
        struct str seal = json_string(json_get(item, seals[i]));

        if (seal.len > 0)
            return seal;
    }
    return (struct str){0};
}

/* Reports whether the item is a thought. Parts of the visible answer have a text, too. */
static bool is_thought(const struct json *item)
{
    struct str type = json_string(json_get(item, "type"));

    return !str_eq_c(type, "text") && !str_eq_c(type, "output_text") && !str_eq_c(type, "refusal");
}

static struct thought_block read_thought_item(const struct json *item)
{
    static const char *const texts[] = {"text", "summary", "thinking"};
    struct thought_block b = {.seal = thought_item_seal(item)};

    for (size_t i = 0; i < ARRAY_LEN(texts) && !b.text.p; i++)
        b.text = json_string(json_get(item, texts[i]));
    b.signs_text = b.text.p && b.seal.len > 0;
    return b;
}

/* Reports whether the blocks' texts together are the thought. */
static bool spells_thought(const struct thought_block *b, size_t n, struct str thought)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (!str_eq(str_sub(thought, at, b[i].text.len), str_sub(b[i].text, 0, SIZE_MAX)))
            return false;
        at += b[i].text.len;
    }
    return at == thought.len;
}

/* Moves the texts into one block at the front, with the first signature of a text. */
static size_t join_texts(struct thought_block *b, size_t n, struct str thought)
{
    struct thought_block first = {.text = thought};
    size_t kept = 1;

    for (size_t i = 1; i <= n; i++) {
        if (b[i].signs_text && !first.seal.p) {
            first.seal = b[i].seal;
            first.signs_text = true;
        } else if (b[i].seal.p) {
            b[kept++] = (struct thought_block){.seal = b[i].seal};
        }
    }
    b[0] = first;
    if (thought.len > 0 || first.seal.p)
        return kept;
    for (size_t i = 1; i < kept; i++)
        b[i - 1] = b[i];
    return kept - 1;
}

/* Reads one list into b[1] and on; b[0] is free. Returns the number of blocks; 0: none of them is
 * sealed. */
static size_t read_list(const struct json *list, struct thought_block *b)
{
    size_t n = 0;
    bool any = false;

    for (size_t i = 0; json_at(list, i) && n < BLOCKS_MAX; i++) {
        struct thought_block x = read_thought_item(json_at(list, i));

        if (!is_thought(json_at(list, i)) || (x.text.len == 0 && x.seal.len == 0))
            continue;
        any = any || x.seal.len > 0;
        b[1 + n++] = x;
    }
    return any ? n : 0;
}

size_t thought_blocks_read(struct arena *a, const struct json *message, struct thought_block **ret)
{
    static const char *const lists[] = {"reasoning_details", "thinking_blocks", "content_parts"};
    static const char *const members[] = {"reasoning_opaque", "encrypted_content"};
    struct str thought = json_string(json_get(message, "reasoning_content"));
    struct thought_block *b;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const struct json *list = json_get(message, lists[i]);

        if (!json_is(list, JSON_ARRAY) || list->n == 0)
            continue;
        b = arena_calloc(a, MIN_OF(list->n, (uint32_t)BLOCKS_MAX) + 1, sizeof(*b));
        n = read_list(list, b);
        if (n == 0)
            continue;
        if (spells_thought(b + 1, n, thought)) {
            *ret = b + 1;
            return n;
        }
        *ret = b;
        return join_texts(b, n, thought);
    }
    *ret = b = arena_calloc(a, 1, sizeof(*b));
    b->text = thought;
    for (size_t i = 0; i < ARRAY_LEN(members) && b->seal.len == 0; i++)
        b->seal = json_string(json_get(message, members[i]));
    b->signs_text = b->seal.len > 0 && thought.len > 0;
    return thought.len > 0 || b->seal.len > 0;
}
