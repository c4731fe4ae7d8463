/* A group's `export`: options of finalize, which every member is finalized with. They are checked
 * when the group is submitted, not when its first attempt ends. */
#ifndef RG_DISPATCHER_GROUP_EXPORT_H
#define RG_DISPATCHER_GROUP_EXPORT_H

struct err;
struct json;

/* The names, values and limits of finalize's body (common/codec/exports.def). `body` and `defaults`
 * are submissions; `where` ("groups[3]." or "") precedes the name in the error. -1: ERR_INVALID
 * that names the option. */
int group_export_check(const struct json *body, const struct json *defaults, const char *where,
                       struct err *e);

#endif
