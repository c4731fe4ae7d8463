#include "keeper/node_entry.h"

#include <string.h>

#include "common/base/buf.h"
#include "testing.h"

TEST(node_entry, a_node_is_read_as_it_was_written)
{
    struct node_entry n = {.address = "10.0.0.7:8600",
                           .instance = "0123456789abcdef0123456789abcdef",
                           .build = "0.1.0",
                           .tokenizer = "0011223344556677",
                           .draining = true,
                           .load = 250,
                           .block = 3905,
                           .oldest_record = 9,
                           .newest_record = 10,
                           .edition = 7},
                      got;
    struct buf text = {0};

    node_entry_write(&n, &text);
    cr_assert_eq(node_entry_read(buf_str(&text), &got), 0);
    cr_assert_str_eq(got.address, n.address);
    cr_assert_str_eq(got.instance, n.instance);
    cr_assert(got.draining && got.load == 250 && got.block == 3905 && got.oldest_record == 9 &&
              got.newest_record == 10 && got.edition == 7);
    buf_done(&text);
}

TEST(node_entry, other_forms_are_refused)
{
    static const char *const texts[] = {
        "", "{}", "[1]", "{\"address\":\"a:1\"}",
        /* an invalid block; a name with a NUL */
        "{\"address\":\"a:1\",\"block\":3906,\"instance\":\"i\",\"build\":\"b\",\"tokenizer\":"
        "\"t\","
        "\"load\":0,\"records\":[9,10],\"edition\":0}",
        "{\"address\":\"a\\u0000:1\",\"block\":1,\"instance\":\"i\",\"build\":\"b\","
        "\"tokenizer\":\"t\",\"load\":0,\"records\":[9,10],\"edition\":0}"};
    struct node_entry got;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        cr_assert_neq(node_entry_read(str_cstr(texts[i]), &got), 0, "%zu", i);
}

TEST(node_entry, nodes_with_other_keys_do_not_fit)
{
    struct fleet_entry mine = {.layout = FLEET_LAYOUT,
                               .secrets = {"new", "old"},
                               .n_secrets = 2,
                               .admins = "keys"},
                       stored = mine;

    cr_assert_null(fleet_entry_fault(&mine, &stored));
    /* the fleet does not have the new secret yet, so admin keys cannot be compared */
    stored = (struct fleet_entry){
        .layout = FLEET_LAYOUT, .secrets = {"old"}, .n_secrets = 1, .admins = "other"};
    cr_assert_null(fleet_entry_fault(&mine, &stored));
    cr_assert_null(fleet_entry_fault(&stored, &mine));
    strcpy(stored.secrets[0], "third");
    cr_assert(strstr(fleet_entry_fault(&mine, &stored), "secret"));
    strcpy(stored.secrets[0], "new");
    cr_assert(strstr(fleet_entry_fault(&mine, &stored), "admin keys"));
    stored.layout++;
    cr_assert(strstr(fleet_entry_fault(&mine, &stored), "layout"));
}
