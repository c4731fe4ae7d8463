/* One number for the behaviour of a tokenizer. Files that encode or decode differently have
 * different numbers. The same tokenizer written by a different program (spaces, merges as pairs or
 * as texts, defaults spelt out in the model) has the same number. */
#include "worker/text/tokens/tokenizer_parts.h"

#include "common/codec/json.h"
#include "worker/text/tokens/tokenizer.h"

static uint64_t mix_bytes(uint64_t h, const void *p, size_t n)
{
    return str_hash(str_of(p, n), h + 1);
}

static uint64_t mix_text(uint64_t h, struct str s)
{
    return mix_bytes(s.p ? h : ~h, s.p ? s.p : "", s.len);
}

static uint64_t mix_number(uint64_t h, uint64_t v)
{
    return mix_bytes(h, &v, sizeof(v));
}

/* Mixes in the text of each id. */
static uint64_t mix_pieces(uint64_t h, const struct tokenizer *t)
{
    for (size_t id = 0; id < t->vocab_size; id++)
        h = mix_text(h, tokenizer_piece(t, (int32_t)id));
    for (size_t i = 0; i < tokenizer_added_count(t); i++) {
        const struct added_token *a = tokenizer_added(t, i);

        h = mix_text(h, a->content);
        h = mix_number(h, (uint64_t)a->id << 8 | (unsigned)a->special | a->single_word << 1 |
                              a->lstrip << 2 | a->rstrip << 3 | a->normalized << 4);
    }
    return h;
}

/* "a b" and ["a", "b"] give the same hash. */
static uint64_t mix_merges(uint64_t h, const struct json *merges)
{
    for (uint32_t i = 0; merges && i < merges->n; i++) {
        const struct json *m = &merges->items[i];
        struct str text = json_string(m);
        const char *space = text.p ? memchr(text.p, ' ', text.len) : NULL;
        size_t left = space ? (size_t)(space - text.p) : 0;

        if (space) {
            h = mix_text(h, str_sub(text, 0, left));
            h = mix_text(h, str_sub(text, left + 1, text.len));
        } else {
            h = mix_text(h, json_string(json_at(m, 0)));
            h = mix_text(h, json_string(json_at(m, 1)));
        }
    }
    return h;
}

static uint64_t mix_section(uint64_t h, const struct json *part, struct buf *text)
{
    buf_clear(text);
    if (!json_is_null(part))
        json_write(text, part);
    return mix_text(h, buf_str(text));
}

/* Hashes scores as numbers: "-3.0" and "-3" give the same hash. */
static uint64_t mix_unigram(uint64_t h, const struct tokenizer *t)
{
    const struct unigram *u = &t->unigram;

    h = mix_bytes(h, u->scores, t->vocab.id_count * sizeof(*u->scores));
    return mix_number(h, (uint64_t)(uint32_t)u->unk << 8 | (unsigned)u->byte_fallback);
}

/* Hashes vocabulary and added tokens by id, merges in order, flags of the model, the three
 * configured parts as JSON text, and the template of special tokens. Never returns 0. */
uint64_t tokenizer_fingerprint_of(const struct tokenizer *t, const struct json *root)
{
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "decoder"};
    const struct json *model = json_get(root, "model");
    const struct bpe *b = &t->bpe;
    struct buf text = {0};
    uint64_t h = mix_pieces(0, t);

    h = mix_merges(h, json_get(model, "merges"));
    h = mix_text(mix_text(h, b->prefix), b->suffix);
    h = mix_number(h, (uint64_t)(uint32_t)b->unk << 8 | (unsigned)b->byte_fallback |
                          b->fuse_unk << 1 | b->ignore_merges << 2);
    if (t->is_unigram)
        h = mix_unigram(h, t);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        h = mix_section(h, json_get(root, parts[i]), &text);
    h = mix_bytes(h, t->post.at, t->post.n * sizeof(*t->post.at));
    buf_done(&text);
    return h ? h : 1;
}

uint64_t tokenizer_fingerprint(const struct tokenizer *t)
{
    return t->fingerprint;
}
