#include "common/fleet/redis_info.h"

#include <string.h>

#include "common/base/attrs.h"
#include "testing.h"

TEST(redis_info, what_is_wrong_with_a_server_is_said)
{
    static const struct {
        const char *info, *fault;
    } cases[] = {
        {"redis_version:7.0.1\r\nmaxmemory_policy:noeviction\r\n", NULL},
        {"redis_version:6.2.9\r\nmaxmemory_policy:noeviction\r\n", "older than version 7.0"},
        {"maxmemory_policy:noeviction\r\n", "no readable redis_version"},
        {"redis_version:unstable\r\nmaxmemory_policy:noeviction\r\n", "no readable redis_version"},
        {"", "no readable redis_version"},
        {"redis_version:7.0.1\r\ncluster_enabled:1\r\n", "Cluster"},
        {"redis_version:8.0\r\nmaxmemory_policy:allkeys-lru\r\n", "maxmemory-policy"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *fault = redis_info_fault(str_cstr(cases[i].info));

        cr_assert((fault == NULL) == (cases[i].fault == NULL) &&
                      (!fault || strstr(fault, cases[i].fault)),
                  "%s: %s", cases[i].info, fault ? fault : "-");
    }
}
