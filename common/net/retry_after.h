/*
 * Reads the time that a server asks its client to wait: Retry-After of RFC 9110 (seconds or a
 * date), and retry-after-ms, which OpenAI and Azure send as well. Pure.
 */
#ifndef RG_NET_RETRY_AFTER_H
#define RG_NET_RETRY_AFTER_H

#include <stdint.h>

#include "common/base/str.h"

enum { RETRY_AFTER_MAX_S = 7 * 24 * 3600 };

/* Returns the seconds to wait, rounded up, at least 1 and at most RETRY_AFTER_MAX_S. Returns 0 if
 * neither header has a time. `header` and `header_ms` may be absent; `header_ms` takes
 * precedence. */
uint32_t retry_after_read(struct str header, struct str header_ms, int64_t now_s);

#endif
