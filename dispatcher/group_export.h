/* A group's `export`: the options with which every member is finalized. They are checked when the
 * group is submitted, not when its first attempt ends. */
#ifndef RG_DISPATCHER_GROUP_EXPORT_H
#define RG_DISPATCHER_GROUP_EXPORT_H

struct err;
struct json;

/* Checks names, values and limits against those of finalize's body (common/codec/exports.def).
 * `body` and `defaults` are submissions; `where` ("groups[3]." or "") precedes the name in the
 * error. Returns -1 with ERR_INVALID, which names the option. */
int group_export_check(const struct json *body, const struct json *defaults, const char *where,
                       struct err *e);

#endif
