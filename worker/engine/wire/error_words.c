/* Every server has its own words. Unknown words are ignored. */
#include "worker/engine/wire/error_words.h"

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/net/retry_after.h"
#include "worker/engine/wire/overflow.h"

static const struct {
    const char *word;
    int status;
} words[] = {
    {"rate_limit_exceeded", 429},
    {"rate_limit_error", 429},
    {"rate_limit_reached", 429},
    {"rate_limit", 429},
    {"rate_limited", 429},
    {"ratelimiterror", 429},
    {"ratelimitreached", 429},
    {"too_many_requests", 429},
    {"toomanyrequests", 429},
    {"toomanyrequestserror", 429},
    {"resource_exhausted", 429},
    {"throttling", 429},
    {"throttling_error", 429},
    {"throttlingexception", 429},
    {"insufficient_quota", 429},
    {"quota_exceeded", 429},
    {"queue_full", 429},
    {"overloaded_error", 503},
    {"overloaded", 503},
    {"overloadederror", 503},
    {"engine_overloaded", 503},
    {"engine_overloaded_error", 503},
    {"server_overloaded", 503},
    {"server_is_overloaded", 503},
    {"slow_down", 503},
    {"service_unavailable", 503},
    {"service_unavailable_error", 503},
    {"serviceunavailable", 503},
    {"serviceunavailableerror", 503},
    {"unavailable_error", 503},
    {"unavailable", 503},
    {"capacity_exceeded", 503},
    {"timeout", 504},
    {"timeout_error", 504},
    {"deadline_exceeded", 504},
    {"invalid_request_error", 400},
    {"badrequesterror", 400},
    {"invalid_argument", 400},
};

int64_t error_words_status(struct str word)
{
    uint64_t n;

    if (str_to_u64(word, INT32_MAX, &n) == 0)
        return n >= 400 && n < 600 ? (int64_t)n : 0;
    if (overflow_is_code(word))
        return 400;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq_nocase(word, str_cstr(words[i].word)))
            return words[i].status;
    }
    return 0;
}

int64_t error_words_read(const struct json *error)
{
    static const char *const names[] = {"code", "status", "status_code", "type"};

    if (overflow_is_code(json_string(json_get(error, "type"))))
        return 400;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int64_t status = error_words_status(json_text(json_get(error, names[i])));

        if (status)
            return status;
    }
    return 500;
}

uint32_t error_words_wait(const struct json *error)
{
    int64_t now_s = (int64_t)(clock_wall_ms() / 1000);
    const struct json *from[] = {error, json_get(error, "metadata")};
    uint32_t wait = 0;

    for (size_t i = 0; i < ARRAY_LEN(from) && wait == 0; i++) {
        struct str seconds = json_text(json_get(from[i], "retry_after"));

        if (!seconds.len)
            seconds = json_text(json_get(from[i], "retry_after_seconds"));
        wait = retry_after_read(seconds, json_text(json_get(from[i], "retry_after_ms")), now_s);
    }
    return wait;
}
