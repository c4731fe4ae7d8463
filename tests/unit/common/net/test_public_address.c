#include "common/net/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/base/attrs.h"
#include "testing.h"

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage ret = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&ret;

    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
    } else {
        cr_assert_eq(inet_pton(AF_INET6, text, &v6->sin6_addr), 1, "%s", text);
        v6->sin6_family = AF_INET6;
    }
    return ret;
}

static bool is_public(const char *text)
{
    struct sockaddr_storage a = address(text);

    return address_is_public((const struct sockaddr *)&a);
}

TEST(public_address, refused)
{
    static const char *const all[] = {
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.254",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:808:808::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ffff::1",
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        cr_assert(!is_public(all[i]), "%s", all[i]);
}

TEST(public_address, let)
{
    static const char *const all[] = {
        "1.1.1.1",        "8.8.8.8",          "9.255.255.255",   "11.0.0.0",
        "100.63.255.255", "100.128.0.0",      "126.255.255.255", "128.0.0.0",
        "168.63.129.15",  "169.253.255.255",  "169.255.0.0",     "172.15.255.255",
        "172.32.0.0",     "192.0.1.0",        "192.0.3.0",       "192.167.255.255",
        "192.169.0.0",    "198.17.255.255",   "198.20.0.0",      "223.255.255.255",
        "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2001:200::1",     "2001:4860:4860::8888",
        "2003::1",        "2606:4700::1111",  "3ffe::1",
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        cr_assert(is_public(all[i]), "%s", all[i]);
}

TEST(public_address, other_families_are_not)
{
    struct sockaddr a = {.sa_family = AF_UNIX};
    struct address_net all;

    cr_assert(!address_is_public(&a));
    cr_assert_eq(address_net_parse(STR("::/0"), &all), 0);
    cr_assert(!address_net_has(&all, &a));
}

static bool has(const char *net, const char *text)
{
    struct sockaddr_storage a = address(text);
    struct address_net n;

    cr_assert_eq(address_net_parse(str_cstr(net), &n), 0, "%s", net);
    return address_net_has(&n, (const struct sockaddr *)&a);
}

TEST(address_net, ranges)
{
    cr_assert(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.0"));
    cr_assert(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
    cr_assert(has("127.0.0.1", "::ffff:127.0.0.1"));
    cr_assert(has("172.16.0.0/12", "172.31.1.1") && !has("172.16.0.0/12", "172.32.1.1"));
    cr_assert(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
    cr_assert(has("fd00::/8", "fdff::1") && !has("fd00::/8", "fc00::1"));
    cr_assert(has("::1", "::1") && has("::/0", "127.0.0.1"));
}

TEST(address_net, refused)
{
    static const char *const bad[] = {"",          "10",          "10.0.0.0/33", "10.0.0.1/8",
                                      "10.0.0/24", "010.0.0.0/8", "::/129",      "fd00::1/8",
                                      "10.0.0.0/", "a/8",         "1.2.3.4/-1",  "fe80::1%lo"};
    struct address_net n;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(address_net_parse(str_cstr(bad[i]), &n), -1, "%s", bad[i]);
}
