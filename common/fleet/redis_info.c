/* Lines of INFO (redis_info.h), and what a fleet asks of a server. */
#include "common/fleet/redis_info.h"

struct str redis_info_find(struct str info, const char *name)
{
    while (info.len > 0) {
        struct str line = str_trim(str_cut(&info, '\n'));
        size_t colon = str_find(line, STR(":"), 0);

        if (colon != SIZE_MAX && str_eq_c(str_sub(line, 0, colon), name))
            return str_sub(line, colon + 1, SIZE_MAX);
    }
    return str_of(NULL, 0);
}

uint64_t redis_info_number(struct str info, const char *name)
{
    uint64_t value = 0;

    (void)str_to_u64(redis_info_find(info, name), UINT64_MAX, &value);
    return value;
}

uint64_t redis_info_major(struct str info)
{
    struct str version = redis_info_find(info, "redis_version");
    uint64_t major = 0;

    (void)str_to_u64(str_sub(version, 0, str_find(version, STR("."), 0)), 1000, &major);
    return major;
}

const char *redis_info_fault(struct str info)
{
    if (redis_info_major(info) == 0)
        return "INFO of the store has no readable redis_version";
    if (redis_info_major(info) < REDIS_OLDEST_MAJOR)
        return "the store is older than version 7.0";
    if (redis_info_number(info, "cluster_enabled"))
        return "the store is a Redis Cluster, which is not supported";
    if (!str_eq_c(redis_info_find(info, "maxmemory_policy"), "noeviction"))
        return "the store would delete records: set its maxmemory-policy to noeviction";
    return NULL;
}
