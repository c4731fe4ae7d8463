#include "worker/plane/control/orders_entry.h"

#include "common/base/buf.h"
#include "common/codec/json.h"
#include "testing.h"

TEST(orders_entry, an_order_changes_its_member_alone)
{
    struct arena a = {0};
    struct orders_entry o;
    struct buf first = {0}, second = {0}, third = {0};

    cr_assert_eq(orders_entry_read(&a, STR(""), &o), 0);
    cr_assert_null(o.values[FLEET_VERSION]);
    orders_entry_write(&o, FLEET_VERSION, STR("\"step-3\""), 7, &first);
    cr_assert_eq(orders_entry_read(&a, buf_str(&first), &o), 0);
    orders_entry_write(&o, FLEET_PAUSED, STR("true"), 8, &second);
    cr_assert_eq(orders_entry_read(&a, buf_str(&second), &o), 0);
    orders_entry_write(&o, FLEET_VERSION, STR("\"\""), 9, &third);
    cr_assert_eq(orders_entry_read(&a, buf_str(&third), &o), 0);
    cr_assert(json_is_true(o.values[FLEET_PAUSED]) && o.editions[FLEET_PAUSED] == 8);
    cr_assert(json_string(o.values[FLEET_VERSION]).len == 0 && o.editions[FLEET_VERSION] == 9);
    cr_assert_null(o.values[FLEET_ENGINES]);
    buf_done(&first);
    buf_done(&second);
    buf_done(&third);
    arena_done(&a);
}

TEST(orders_entry, members_of_another_build_are_kept)
{
    struct arena a = {0};
    struct orders_entry o;
    struct buf out = {0};

    cr_assert_eq(orders_entry_read(&a, STR("{\"sinks\":{\"edition\":3,\"value\":{}}}"), &o), 0);
    orders_entry_write(&o, FLEET_ENGINES, STR("[\"builtin:echo\"]"), 4, &out);
    cr_assert_eq(orders_entry_read(&a, buf_str(&out), &o), 0);
    cr_assert_not_null(json_get(json_get(o.all, "sinks"), "value"));
    cr_assert(o.editions[FLEET_ENGINES] == 4 && json_at(o.values[FLEET_ENGINES], 0));
    buf_done(&out);
    arena_done(&a);
}

TEST(orders_entry, other_forms_are_refused)
{
    static const char *const texts[] = {
        "[]",
        "{",
        "{\"version\":7}",
        "{\"version\":{\"value\":\"7\"}}",
        "{\"version\":{\"edition\":-1,\"value\":\"7\"}}",
        "{\"version\":{\"edition\":1,\"value\":7}}",
        "{\"paused\":{\"edition\":1,\"value\":1}}",
        "{\"adapters\":{\"edition\":1,\"value\":[{\"name\":\"a\"}]}}",
        "{\"adapters\":{\"edition\":1,\"value\":[{\"name\":\"a\",\"version\":\"\"}]}}",
        "{\"engines\":{\"edition\":1,\"value\":[7]}}",
        "{\"engines\":{\"edition\":1}}",
    };
    struct arena a = {0};
    struct orders_entry o;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        cr_assert_neq(orders_entry_read(&a, str_cstr(texts[i]), &o), 0, "%zu", i);
    arena_done(&a);
}
