
#include "common/base/attrs.h"
#include "common/net/resolve.h"
#include "testing.h"

/* Returns the number of addresses of a name. All must be loopback addresses with that port. */
static size_t loopbacks(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    size_t n = 0;

    if (resolve_names(host, "80", &hints, &list) != 0)
        return 0;
    for (const struct addrinfo *at = list; at; at = at->ai_next, n++) {
        char text[RESOLVE_TEXT];

        resolve_text(at->ai_addr, at->ai_addrlen, text);
        cr_expect(strcmp(text, "127.0.0.1:80") == 0 || strcmp(text, "[::1]:80") == 0, "%s", text);
    }
    freeaddrinfo(list);
    return n;
}

TEST(resolve, localhost_needs_no_file_and_no_server)
{
    static const char *const names[] = {"localhost", "LocalHost", "localhost.", "a.localhost",
                                        "a.b.LOCALHOST."};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        cr_expect_eq(loopbacks(names[i]), 2, "%s", names[i]);
    cr_expect_eq(loopbacks("127.0.0.1"), 1);
}

TEST(resolve, localhost_is_no_number)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list = NULL;

    cr_expect_neq(resolve_names("localhost", "80", &hints, &list), 0);
}
