/*
 * A store of a fleet in one file, for tests: processes that open the same file share it. Not
 * durable and not fast. It has the rules of fleet_store.h in C, so it is the measure of the
 * scripts.
 */
#ifndef RG_TEST_FILE_STORE_H
#define RG_TEST_FILE_STORE_H

struct loop;
struct store;

struct store *file_store_new(struct loop *loop, const char *path);

#endif
