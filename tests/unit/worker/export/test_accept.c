#include "worker/export/build/accept.h"

#include "testing.h"

TEST(accept, the_greatest_weight_wins)
{
    static const struct {
        const char *header;
        enum export_format want;
    } cases[] = {
        {"", EXPORT_JSON},
        {"text/html", EXPORT_JSON},
        {"*/*", EXPORT_JSON},
        {"application/msgpack", EXPORT_MSGPACK},
        {"APPLICATION/X-MsgPack", EXPORT_MSGPACK},
        {"application/octet-stream", EXPORT_SAFETENSORS},
        {"text/html, application/msgpack;q=0.9, application/json;q=0.1", EXPORT_MSGPACK},
        {"application/json;q=0.1, application/msgpack;q=0.9", EXPORT_MSGPACK},
        {"application/json;q=0.1,application/safetensors;v=1;q=0.25,*/*;q=0.2", EXPORT_SAFETENSORS},
        {"application/msgpack ; q=0.5 , application/json ; q=0.50", EXPORT_MSGPACK},
        {"application/json, application/msgpack", EXPORT_JSON},
        {"application/msgpack, application/json", EXPORT_MSGPACK},
        {"*/*, application/msgpack", EXPORT_MSGPACK},
        {"*/*, application/msgpack;q=0.5", EXPORT_JSON},
        {"application/json;q=0, */*;q=0.1", EXPORT_MSGPACK},
        {"application/json;q=0, application/msgpack;q=0, application/*", EXPORT_SAFETENSORS},
        {"application/msgpack;q=0", EXPORT_JSON},
        {"application/msgpack;q=0.000, application/safetensors;q=0.001", EXPORT_SAFETENSORS},
        {"application/msgpack;q=, application/json;q=0.9", EXPORT_MSGPACK},
        {"application/msgpackx", EXPORT_JSON},
        {"application/x-msgpack;q=0.1, application/msgpack;q=0.8, application/json;q=0.5",
         EXPORT_MSGPACK},
        {",,;;q=1,", EXPORT_JSON},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_eq(accept_format(str_cstr(cases[i].header), EXPORT_JSON), cases[i].want, "%s",
                     cases[i].header);
    cr_expect_eq(accept_format((struct str){0}, EXPORT_VERL), EXPORT_VERL);
    cr_expect_eq(accept_format(STR("*/*"), EXPORT_VERL), EXPORT_VERL);
}
