/*
 * The machinery that all grammars share: source bytes with absolute offsets, the accounting of
 * every byte (core_output), literals that may be cut, the life of one call. Internal to parsers/.
 *
 * Offsets are absolute: bytes since the start of the completion. in has [base, base + in.len). The
 * sink already has [base, done), which is dropped when a feed ends. A grammar reads one block
 * ("unit"). The unit begins at done (with its lead: white space, section tags). The grammar must
 * not call core_output before the call is committed or accepted.
 */
#ifndef RG_PARSERS_CORE_H
#define RG_PARSERS_CORE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/text/parsers/object_scan.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/parsers/python_scan.h"
#include "worker/text/parsers/tool_index.h"

/* Result of a step. */
enum step {
    STEP_MORE, /* not decided by the bytes so far */
    STEP_YES,  /* matched; pos is after it. For a unit: the call is accepted */
    STEP_NO,   /* not matched. For a unit: not a valid call */
};

struct parser;

struct json_shape;
struct raw_shape;
struct tag_shape;
struct gemma_shape;

/* The head before a message's body: MARK word END. At the start of the answer the mark may be
 * missing. */
struct message_head {
    const char *mark;
    const char *lead; /* text before the word if the mark is missing; NULL: none */
    const char *end[4];
};

/* How a family writes calls: the marks that parser.c searches, and the reader of the text between
 * them. Families share readers and give them their shape. */
struct grammar {
    const char *open[2];  /* begins a section; a call may follow after white space */
    const char *begin[4]; /* begins a call */
    /* byte with which a call may begin right after a section's tag, as a part of the call; 0: none
     */
    char opened;
    bool named;           /* the call's name may follow right after a section's tag */
    const char *close[3]; /* ends a section */
    const char *skip[4];  /* syntax anywhere between calls */
    /* text that begins a call even in the middle of text, as a part of the call */
    const char *prose[2];
    const char *end;       /* ends a call: a broken committed call stops here; or NULL */
    const char *within[6]; /* further marks in a call that may be tokens of a vocabulary */
    /* Reads a call from pos on (after the begin mark). Its state is in p->call. */
    enum step (*run)(struct parser *p);
    /* Finds a call without a mark at pos, if only white space is between pos and the start or the
     * last call. NULL: the grammar has no such calls. If it returns STEP_YES, run starts at pos. */
    enum step (*bare)(struct parser *p);
    const struct message_head *header;
    const struct json_shape *json;
    const struct raw_shape *raw;
    const struct tag_shape *tags;
    const struct gemma_shape *gemma;
};

/* Tags around a thought, in several spellings; unused elements are NULL. */
struct think_tags {
    const char *start[3];
    const char *end[3];
    const char *wrap[4]; /* marks around the answer, which are syntax */
    bool forced;      /* the model starts inside its thought even if the prompt does not say so */
    bool call_closes; /* a tool call ends an open thought */
    bool bare_end;    /* an end tag may open an answer without a thought */
    bool newlines;    /* newlines after the end tag are syntax */
};

enum parser_phase {
    PHASE_START,
    PHASE_REASONING,
    PHASE_CONTENT,
    PHASE_OPENED,
    PHASE_HEADER,
    PHASE_UNIT,
    PHASE_SKIPPED, /* skips an element of a list that is not a call */
    PHASE_BROKEN
};

/* Warnings about an answer. Their texts are a turn's parse_warning. */
enum parser_warning {
    WARN_BLOCK,    /* a block is not a valid call */
    WARN_MESSAGE,  /* channels: a message is neither text, thought nor a valid call */
    WARN_UNCLOSED, /* a call without its closing mark */
    WARN_CUT,      /* the last call is cut */
    WARN_STREAMED, /* a call is not valid, but its arguments have been sent */
    WARN_GIVEN_UP, /* no further blocks are searched for calls */
    WARNING_COUNT
};

enum { CALL_DEPTH_MAX = 64, NAME_MAX_BYTES = 256 };

/* The call that is being read. */
struct tool_call {
    int st;    /* state of the grammar */
    int stage; /* state of an outer grammar that calls a second one */
    int field; /* kind of the value being read */
    /* the name is known and the arguments have begun: the call may be committed */
    bool ready;
    bool committed; /* CALL_BEGIN was sent */
    bool ended;     /* CALL_END was sent */
    /* the closing mark of the call is missing, which causes a warning when the call is accepted */
    bool unclosed;
    bool prose;     /* the call began in the middle of text */
    bool listed;    /* the call is inside of brackets */
    bool wrapped;   /* the only parameter of the call may contain all arguments */
    bool args_made; /* arguments are composed in `made`, and are not the model's own bytes */
    /* composed arguments: offset up to which the source is in `made`; 0: all up to pos is */
    size_t unsaid;
    size_t item;      /* first byte of an element of a list; 0: the call is in no list */
    size_t from;      /* start of a key or value, remembered by the grammar */
    size_t args_from; /* for arguments that are the model's own bytes: [args_from, args_to) */
    size_t args_to;   /* 0 while the arguments are open */
    size_t args_sent; /* the arguments before this offset were sent */
    unsigned n_params;
    unsigned types;  /* types of the parameter that is being read */
    struct buf name; /* decoded */
    struct buf id;   /* the model's own id, if it wrote one */
    struct buf key;  /* name of the parameter that is being read */
    struct buf made; /* composed arguments that were not sent yet */
    struct object_scan scan;
    struct python_scan python;
    size_t closer;    /* pythonic: the quote that closes the present broken string; 0: none */
    size_t mark_from; /* pythonic: the block's closing mark does not begin before this byte */
    unsigned depth;   /* number of nested values */
    uint8_t levels[CALL_DEPTH_MAX];             /* for each nested value: kind of its container */
    const struct json *schemas[CALL_DEPTH_MAX]; /* for each nested value: its schema, or NULL */
    size_t values[CALL_DEPTH_MAX];              /* for each nested value: its start in `made` */
    uint16_t name_ends[CALL_DEPTH_MAX]; /* for each nested value: the end of its name in `key` */
};

struct parser {
    const struct think_tags *think;
    const struct grammar *grammar; /* NULL: the parser has no grammar */
    enum tool_kind tool;
    struct tool_index *tools;
    size_t hold_bytes;
    struct parse_sink sink;
    struct buf in;
    size_t base, done, pos;
    size_t mark_end;   /* end of the mark that began the present unit */
    size_t blank_from; /* [blank_from, blank_to) is all white space */
    size_t blank_to;
    size_t reread; /* bytes of failed units that were read again */
    /* searches for the tool that fits the arguments of a call without a name */
    size_t looks;
    bool calls_given_up; /* too many searches: no further calls are searched */
    uint32_t warned[WARNING_COUNT];
    bool headless; /* the answer began without a header */
    int phase;     /* an enum parser_phase */
    bool final;
    bool reasoning_open;
    bool call_closes; /* a call ends an open thought */
    bool drops_newlines;
    bool quiet;      /* only white space since the start, the thought or the last call */
    bool marked;     /* a thought or call was recognised */
    bool in_section; /* a section with a valid call is open */
    bool in_list;    /* pos is between the calls of a list */
    int n_calls;
    struct tool_call call;
    bool harmony;               /* channels: `phase` is an enum harmony_phase */
    enum parse_kind body;       /* harmony: what the body of the open message is */
    bool verbatim;              /* harmony: the end mark of the message is text, too */
    struct parser_bytes starts; /* result of parser_steady for phase and section */
    int starts_of;              /* phase and section for which `starts` is valid; 0: none yet */
};

static inline size_t core_end(const struct parser *p)
{
    return p->base + p->in.len;
}

static inline char core_at(const struct parser *p, size_t off)
{
    return p->in.p[off - p->base];
}

static inline struct str core_cut(const struct parser *p, size_t from, size_t to)
{
    return str_of(p->in.p + (from - p->base), to - from);
}

/* Reports whether pos is at the end of all text. */
static inline bool core_over(const struct parser *p)
{
    return p->final && p->pos == core_end(p);
}

static inline bool core_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool core_all_blank(struct str s);

/* Returns the end of the white space from `from` on, as far as it is known. A repeated search of a
 * growing run continues where it ended. */
size_t core_blanks_end(struct parser *p, size_t from);

/* Sends the bytes [done, upto) to the sink as `kind`. */
void core_output(struct parser *p, enum parse_kind kind, size_t upto);
/* Sends the bytes before pos as text. If only calls came so far and the bytes are white space, they
 * wait for what follows. */
void core_output_text(struct parser *p);
/* Emits the warning the first time. Later ones are counted. */
void core_warn(struct parser *p, enum parser_warning what);
/* Emits, at the end, the counts of warnings that occurred more than once. */
void core_warn_counts(struct parser *p);

/* Reports whether `lit` is at off. MORE if the present bytes are a proper prefix of it. */
enum step core_lit(const struct parser *p, size_t off, const char *lit);

/* Matches a literal at pos; YES moves pos after it. */
enum step core_eat(struct parser *p, const char *lit);

/* Matches a closing mark at pos after white space. At the end of all text, a cut mark matches. */
enum step core_eat_close(struct parser *p, const char *lit);

/* Reads on after a call of a list: leaves a comma for the next call, and consumes the bracket that
 * ends the list. Sets in_list. */
enum step core_end_item(struct parser *p);

/* Skips white space. Returns YES when a different byte, or the end of all text, is reached. */
enum step core_blanks(struct parser *p);

/* Moves pos to the first position from it on where one of the n marks is (YES, *which) or may begin
 * (MORE). If there is none, returns MORE with pos at the end. NULL marks are skipped. */
enum step core_find(struct parser *p, const char *const *marks, size_t n, size_t *which);

/* Reports whether pos is more than max_bytes after `from`. If so, moves it back to that limit, so
 * that later steps do not depend on how far a search happened to get. */
bool core_beyond(struct parser *p, size_t from, size_t max_bytes);

/* --- the present call --- */

/* Clears the call. */
void tool_call_reset(struct parser *p);
/* Returns the schema of the call's tool. *known is false if tools are given and none has its
 * name. */
const struct json *tool_call_schema(const struct parser *p, bool *known);
/* Returns the types of the call's parameter `key`; 0 if it is not declared. */
unsigned tool_call_types(const struct parser *p, struct str key);
/* Sets ready, when the name is known and the arguments have begun. Returns NO if the name is
 * unknown. */
enum step tool_call_ready(struct parser *p);
void tool_call_begin(struct parser *p);
/* Sends the certain part of a call's events if the unit is longer than hold_bytes. */
void tool_call_stream(struct parser *p);
/* Marks a committed call as not valid. The search for its end continues from pos. Arguments that
 * are the model's own bytes continue up to that end. For composed arguments, and after complete
 * ones, the unused source is text. */
void tool_call_breaks(struct parser *p);
/* Passes on the bytes of a broken call up to pos. */
void tool_call_pass_remainder(struct parser *p);
/* Ends a broken call before pos. */
void tool_call_remainder_ends(struct parser *p);
/* Accepts the call: sends its missing events and consumes the source up to pos. */
void tool_call_accept(struct parser *p);
void tool_call_end(struct parser *p, bool broken);
/* Reads a JSON object at pos as the arguments. Returns YES after its closing brace. */
enum step tool_call_scan_args(struct parser *p);

/* --- tables (families.c) --- */

/* Returns the grammar of a kind; NULL if it has none, or has channels. */
const struct grammar *grammar_of(enum tool_kind kind);

/* Returns the kind's tags. All are NULL if it has no tags, or has channels. */
const struct think_tags *think_tags_of(enum reasoning_kind kind);

/* Runs one step of harmony, which has channels instead of one text, so it replaces the parser's
 * whole loop. Returns false if nothing more can be decided. */
bool harmony_step(struct parser *p);

/* Reports whether the text is one of harmony's marks, or a fragment of one. */
bool harmony_reads(struct str token);

#endif
