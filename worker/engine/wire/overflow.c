/*
 * Texts are read by forms: each is a list of steps, and a step is a text followed by a number.
 *
 *   "The input (500 tokens) is longer than the model's context length (300 tokens)."
 *        input ( -> prompt                          context length ( -> max
 *
 * Texts are searched from left to right without regard to case; "at least" and "about" may precede
 * a number. The first form whose steps are all found gives the figures. Phrases without figures
 * decide whether the text means this error at all.
 */
#include "worker/engine/wire/overflow.h"

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/codec/json.h"

enum { WORDS_READ = 2048, STEPS_MAX = 4, FIGURE_MAX = 1000 * 1000 * 1000 };

enum figure { FIGURE_NONE, PROMPT, ANSWER, TOTAL, MAX, FIGURES };

struct overflow_step {
    const char *text;
    enum figure figure;
};

/* SGLang, vLLM, llama-server and OpenAI first, then other upstreams. A form with more steps
 * precedes one with the same beginning. */
static const struct overflow_step forms[][STEPS_MAX] = {
    {{"the input (", PROMPT}, {"context length (", MAX}},
    {{"context length of ", MAX}, {"total of ", TOTAL}, {"tokens: ", PROMPT}, {"and ", ANSWER}},
    {{"input length (", PROMPT}, {"maximum allowed length (", MAX}},
    {{"input length (", PROMPT}, {"maximum context length (", MAX}},
    {{"input length ", PROMPT}, {"input length of ", MAX}},
    {{"you passed ", PROMPT},
     {"input tokens and requested ", ANSWER},
     {"context length is only ", MAX}},
    {{"context length is only ", MAX}},
    {{"prompt (total length ", PROMPT}, {"context length ", MAX}},
    {{"token count (", PROMPT}, {"tokens allowed ", MAX}},
    {{"current length is ", PROMPT}, {"limit is ", MAX}},
    {{"prompt is too long: ", PROMPT}, {"maximum context length: ", MAX}},
    {{"context length is ", MAX}, {"you requested ", ANSWER}, {"prompt contains ", PROMPT}},
    {{"is too large: ", ANSWER}, {"context length is ", MAX}, {"request has ", PROMPT}},
    {{"context length is ", MAX}, {"request has ", PROMPT}},
    {{"prompt (length ", PROMPT}, {"maximum model length of ", MAX}},
    {{"context length is ", MAX},
     {"requested ", TOTAL},
     {"tokens (", PROMPT},
     {"messages, ", ANSWER}},
    {{"context length is ", MAX},
     {"requested ", TOTAL},
     {"tokens (", PROMPT},
     {"prompt; ", ANSWER}},
    {{"context length is ", MAX}, {"requested ", TOTAL}, {"tokens (", PROMPT}, {"input, ", ANSWER}},
    {{"context length is ", MAX}, {"requested ", TOTAL}},
    {{"context length is ", MAX}, {"resulted in ", PROMPT}},
    {{"context length is ", MAX}, {"has ", PROMPT}},
    {{"limit of ", MAX}, {"resulted in ", PROMPT}},
    {{"request (", PROMPT}, {"context size (", MAX}},
    {{"n_prompt_tokens ", PROMPT}, {"n_ctx ", MAX}},
    {{"prompt is too long: ", PROMPT}, {"tokens > ", MAX}},
    {{"context limit: ", PROMPT}, {"+ ", ANSWER}, {"> ", MAX}},
    {{"token count (", PROMPT}, {"tokens allowed (", MAX}},
    {{"prompt length is ", MAX}, {"request contains ", PROMPT}},
    {{"token count of ", PROMPT}, {"limit of ", MAX}},
    {{"token limit: ", MAX}, {"requested: ", PROMPT}},
    {{"prompt contains ", PROMPT}, {"model with ", MAX}},
    {{"must be <= ", MAX}, {"given: ", PROMPT}, {"tokens and ", ANSWER}},
    {{"context length is ", MAX}},
    {{"context length of ", MAX}},
};

static const char *const codes[] = {"context_length_exceeded", "exceed_context_size_error",
                                    "model_context_window_exceeded", "context_window_exceeded"};

/* Phrases with no other meaning. */
static const char *const phrases[] = {
    "context length exceeded",
    "contextwindowexceeded",
    "exceeds the context window",
    "context window exceeds limit",
    "exceeds the available context size",
    "context size has been exceeded",
    "maximum context length",
    "the model's context length",
    "greater than the context length",
    "longer than the maximum model length",
    "prompt is too long",
    "exceed context limit",
    "input is too long for requested model",
    "input length exceeds",
    "exceeds the maximum allowed input length",
    "maximum allowed length",
    "input token count",
    "maximum prompt length is",
    "prompt token count",
    "exceeded model token limit",
    "tokens exceed the configured limit",
    "too large for model with",
    "reduce the length of the messages",
    "tokens + `max_new_tokens` must be",
    "range of input length should be",
    "prompt exceeds max length",
    "too many tokens",
    "`inputs` must have less than",
};

/* Phrases that count only together with a refusal. */
static const char *const loose_phrases[] = {"context length", "context size", "context window"};

static char lower_ascii(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool begins_word(struct str words, const char *text)
{
    for (size_t i = 0; text[i]; i++) {
        if (i >= words.len || lower_ascii(words.p[i]) != text[i])
            return false;
    }
    return true;
}

/* Returns the rest after `text`; p NULL: it does not occur. */
static struct str text_after(struct str words, const char *text)
{
    for (size_t i = 0; i < words.len; i++) {
        if (begins_word(str_sub(words, i, SIZE_MAX), text))
            return str_sub(words, i + strlen(text), SIZE_MAX);
    }
    return (struct str){0};
}

static bool has_any(struct str words, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text_after(words, texts[i]).p)
            return true;
    }
    return false;
}

/* Reads the number at the front, which may have commas between its digits. Returns 0 if there is
 * none. */
static uint64_t read_figure(struct str words)
{
    static const char *const fillers[] = {"at least ", "about ", "approximately "};
    uint64_t n = 0;
    size_t i = 0;

    for (size_t k = 0; k < ARRAY_LEN(fillers); k++) {
        if (begins_word(words, fillers[k]))
            words = str_sub(words, strlen(fillers[k]), SIZE_MAX);
    }
    while (i < words.len && n < FIGURE_MAX &&
           ((words.p[i] >= '0' && words.p[i] <= '9') || (words.p[i] == ',' && n > 0))) {
        if (words.p[i] != ',')
            n = n * 10 + (uint64_t)(words.p[i] - '0');
        i++;
    }
    return n;
}

/* Finds the step's text with a number after it. Returns the rest after the text; p NULL: there is
 * no such position. */
static struct str read_step(struct str words, const struct overflow_step *s, uint64_t *ret)
{
    do {
        words = text_after(words, s->text);
        *ret = read_figure(words);
    } while (words.p && *ret == 0);
    return words;
}

static bool read_form(struct str words, const struct overflow_step *steps, struct err_overflow *ret)
{
    uint64_t figures[FIGURES] = {0};

    for (size_t i = 0; i < STEPS_MAX && steps[i].text; i++) {
        words = read_step(words, &steps[i], &figures[steps[i].figure]);
        if (!words.p)
            return false;
    }
    if (figures[PROMPT] == 0)
        figures[PROMPT] = figures[TOTAL];
    *ret = (struct err_overflow){figures[PROMPT], figures[ANSWER], figures[MAX]};
    return true;
}

bool overflow_is_code(struct str code)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (str_eq_nocase(code, str_cstr(codes[i])))
            return true;
    }
    return false;
}

bool overflow_in_words(struct str words, bool sure, struct err_overflow *ret)
{
    *ret = (struct err_overflow){0};
    words = str_sub(words, 0, WORDS_READ);
    if (!has_any(words, codes, ARRAY_LEN(codes)) && !has_any(words, phrases, ARRAY_LEN(phrases)) &&
        (sure || !has_any(words, loose_phrases, ARRAY_LEN(loose_phrases))))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (read_form(words, forms[i], ret))
            break;
    }
    return true;
}

struct str overflow_message(struct arena *a, const struct json *error, struct str message)
{
    struct str code = json_string(json_get(error, "code"));
    int64_t prompt = 0, max = 0;

    if (!overflow_is_code(code))
        code = json_string(json_get(error, "type"));
    if (!overflow_is_code(code))
        return message;
    if (json_to_i64(json_get(error, "n_prompt_tokens"), &prompt) == 0 &&
        json_to_i64(json_get(error, "n_ctx"), &max) == 0)
        return arena_printf(a, "%.*s (%.*s: n_prompt_tokens %lld, n_ctx %lld)", (int)message.len,
                            message.p ? message.p : "", (int)code.len, code.p, (long long)prompt,
                            (long long)max);
    return arena_printf(a, "%.*s (%.*s)", (int)message.len, message.p ? message.p : "",
                        (int)code.len, code.p);
}
