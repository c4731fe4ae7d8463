/* The meaning of a worker's answers for a call. */
#include "dispatcher/workers.h"
#include "testing.h"

TEST(workers, a_call_is_refused_for_good_when_a_repeat_would_be)
{
    static const int for_good[] = {400, 404, 409, 410, 413, 422};
    static const int for_now[] = {0, 200, 204, 401, 403, 408, 429, 500, 502, 503, 504};

    for (size_t i = 0; i < ARRAY_LEN(for_good); i++)
        cr_expect(worker_refuses(for_good[i]), "%d", for_good[i]);
    for (size_t i = 0; i < ARRAY_LEN(for_now); i++)
        cr_expect_not(worker_refuses(for_now[i]), "%d", for_now[i]);
}
