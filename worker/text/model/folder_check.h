/*
 * Contradictions between the files of a model folder, and values that the gateway passes over while
 * engines and transformers use them. Each becomes a warning that names file, member and value.
 */
#ifndef RG_MODEL_FOLDER_CHECK_H
#define RG_MODEL_FOLDER_CHECK_H

struct err;
struct folder;
struct model;

/* Adds warnings to the model, whose tokenizer and special tokens are loaded. Returns -1 with
 * ERR_CONFIG or ERR_UNSUPPORTED if the folder cannot be served as it means to be. */
int folder_check(struct model *m, const struct folder *f, struct err *e);

#endif
