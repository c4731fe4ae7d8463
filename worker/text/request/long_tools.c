/* Hashes of long tools (chat.h). */
#include "common/base/buf.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "worker/text/request/chat.h"

void long_tools_hash(const struct json *tools, uint64_t ret[2])
{
    struct buf text = {0};

    ret[0] = ret[1] = 0;
    if (json_text_bytes(tools, LONG_TOOLS_LEAST + 1) <= LONG_TOOLS_LEAST)
        return;
    json_write(&text, tools);
    str_hash128(buf_str(&text), ret);
    buf_done(&text);
}
