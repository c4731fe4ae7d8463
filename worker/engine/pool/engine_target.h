/*
 * Parses --engine arguments: [NAME=]KIND:REST[,name=value]... into struct engine_target. Opens
 * nothing. `builtin` alone means `builtin:echo`.
 */
#ifndef RG_ENGINE_ENGINE_TARGET_H
#define RG_ENGINE_ENGINE_TARGET_H

struct arena;
struct engine_target;
struct err;

/* Parses an argument. Strings are in the arena. Fails with ERR_CONFIG, which names the mistake. */
int engine_target_parse(struct arena *a, const char *text, struct engine_target *ret,
                        struct err *e);

#endif
