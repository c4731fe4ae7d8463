/*
 * Small tokenizers of different families for the token fuzzers, made once.
 */
#ifndef RG_FUZZ_TOKENS_FUZZ_KIT_H
#define RG_FUZZ_TOKENS_FUZZ_KIT_H

#include "common/base/check.h"
#include "common/codec/json.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/tokenizer.h"

#define FUZZ_ADDED(id, text, flags) \
    "{\"id\":" #id ",\"content\":\"" text "\"," flags ",\"special\":true}"
#define FUZZ_PLAIN "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
#define FUZZ_ODD "\"single_word\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":true"
#define FUZZ_SPLIT(regex)                                                                \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","   \
    "\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}," \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"         \
    "\"decoder\":{\"type\":\"ByteLevel\"}"

/* Everything but the model and the braces; the first FUZZ_EXACT give every text back. */
static const char *const fuzz_pipelines[] = {
    FUZZ_SPLIT("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+|."),
    FUZZ_SPLIT(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
        "?"
        "[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
        "\\\\s+") ",\"added_tokens\":[" FUZZ_ADDED(1, "<|im_start|>",
                                                   FUZZ_PLAIN) "," FUZZ_ADDED(2, "ab",
                                                                              FUZZ_PLAIN) "]",
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"}",
    "\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
    "\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\",\"split\":true},\"added_"
    "tokens\":[" FUZZ_ADDED(1, "<s>", FUZZ_ODD) "," FUZZ_ADDED(
        2, "a",
        FUZZ_PLAIN) "],\"decoder\":{\"type\":"
                    "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                    "\"\xe2\x96\x81\"},"
                    "\"content\":\" "
                    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                    "\"content\":\" \",\"start\":1,\"stop\":1}]}",
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":"
    "\"StripAccents\"},{\"type\":\"Lowercase\"},{\"type\":\"Strip\",\"strip_left\":true,"
    "\"strip_right\":true}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
    "\"type\":"
    "\"Whitespace\"},{\"type\":\"Punctuation\",\"behavior\":\"MergedWithNext\"},{\"type\":"
    "\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]"
    "}",
};

enum { FUZZ_TOKENIZERS = sizeof(fuzz_pipelines) / sizeof(fuzz_pipelines[0]), FUZZ_EXACT = 3 };

static inline struct tokenizer *fuzz_tokenizer(const char *pipeline)
{
    struct buf json = {0}, piece = {0};
    struct tokenizer *t;
    struct err e;

    buf_printf(&json,
               "{%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"!\","
               "\"fuse_unk\":true,\"vocab\":{",
               pipeline);
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;

        buf_clear(&piece);
        byte_level_write(str_of(&byte, 1), &piece);
        json_write_string(&json, buf_str(&piece));
        buf_printf(&json, ":%d,", i);
    }
    for (int i = 0; i < 256; i++)
        buf_printf(&json, "\"<0x%02X>\":%d,", i, 256 + i);
    buf_puts(&json, "\"ab\":512,\"aba\":513,\"\xc4\xa0"
                    "a\":514,\"\xe2\x96\x81\":515,"
                    "\"\xe2\x96\x81"
                    "a\":516},\"merges\":[\"a b\",\"ab a\",\"\xc4\xa0 a\","
                    "\"\xe2\x96\x81 a\"]}}");
    CHECK(tokenizer_parse(buf_str(&json), &t, &e) == 0);
    buf_done(&json);
    buf_done(&piece);
    return t;
}

#endif
