/*
 * Takes --engine arguments apart: [NAME=]KIND:REST[,name=value]... into struct
 * engine_target. Values only, nothing is opened. `builtin` alone means `builtin:echo`.
 */
#ifndef RG_ENGINE_ENGINE_TARGET_H
#define RG_ENGINE_ENGINE_TARGET_H

struct arena;
struct engine_target;
struct err;

/* Strings live in the arena. ERR_CONFIG names what is wrong with the argument. */
int engine_target_parse(struct arena *a, const char *text, struct engine_target *ret,
                        struct err *e);

#endif
