/* Shapes: what a reader that several families share must know of one family. The families' table
 * (families.c) has the values. */
#ifndef RG_PARSERS_SHAPES_H
#define RG_PARSERS_SHAPES_H

#include "worker/text/parsers/core.h"

/* json_call.c: {"name": ..., "arguments" or "parameters": ...}, alone or in a list. */
struct json_shape {
    const char *name, *args, *id; /* further names of these members, or NULL */
    const char *end;              /* must close every call, or NULL */
    bool keyed;                   /* {"NAME": {arguments}} */
    bool bare;       /* calls may open the answer and follow each other without marks */
    bool lists;      /* they may be in brackets, with commas */
    bool needs_args; /* an object without arguments is no call */
    bool escaped;    /* the object's own quotes may be written &#34; */
};

/* raw_call.c: NAME outside, arguments as one JSON object. */
struct raw_shape {
    const char *lead;      /* between the mark and what follows, or NULL */
    const char *id_end;    /* an id precedes the name, up to here, or NULL */
    const char *name_end;  /* ends the name */
    const char *args_lead; /* around the arguments, or NULL */
    const char *args_tail;
    const char *end; /* closes the call, or NULL */
    const char
        *bare; /* the answer may open with a known name; with this it opens as text; or NULL */
};

/* tag_call.c: parameters in tags, one by one; the arguments are composed. */
struct tag_shape {
    const char *name_stops[4]; /* the first one, and any of one byte, is part of the name's tag;
                                  others begin what follows */
    const char *name_rest;     /* end of the name's tag after the first stop, or NULL */
    const char *param;         /* parameter begins */
    const char *key_stop;
    const char *kind_forms[3]; /* after the key: of a text, of JSON, of what the schema says */
    const char *type_tag[2];   /* around a type that may be between key and value, or NULL */
    const char *value_tag;     /* between key and value, or NULL */
    const char *param_end;     /* mark that closes the value */
    bool newlines;             /* one newline at either end of a value is layout */
    bool early_stops;          /* the next parameter or the function's end closes a value as well */
    bool loose;                /* typing by what the text is, but for string parameters */
    bool json_text;            /* a text parameter may be a quoted JSON string */
    bool json_body;            /* one JSON object may replace the parameters */
    bool json_call;            /* a whole call as JSON may replace the name */
    bool self_closes;          /* the other stops of the name close the call */
    bool xml;                  /* CDATA, entities, and white space around values */
    bool entities;             /* in names and keys */
    bool doubled;              /* the name may be written NAME.NAME */
    bool unwraps;              /* `arguments` or `input` alone may hold all arguments */
};

/* gemma_call.c: call:NAME{key:VALUE,...} with a mark for quotes. */
struct gemma_shape {
    const char *quote;
    const char *end;
    bool all_quoted; /* every value is, whatever its type */
};

enum step json_call_run(struct parser *p);
enum step json_call_bare(struct parser *p);
enum step raw_call_run(struct parser *p);
enum step raw_call_bare(struct parser *p);
enum step kimi_call_run(struct parser *p);
enum step mistral_call_run(struct parser *p);
enum step mistral_call_bare(struct parser *p);
enum step tag_call_run(struct parser *p);
enum step python_call_run(struct parser *p);
enum step python_call_bare(struct parser *p);
enum step python_lines_run(struct parser *p); /* without brackets, one a line */
enum step python_lines_bare(struct parser *p);
enum step gemma_call_run(struct parser *p);
enum step nested_call_run(struct parser *p); /* MiniMax-M3 */

#endif
