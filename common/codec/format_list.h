/* The names of the export formats that clients may request, as "json, msgpack, ...". */
#ifndef RG_CODEC_FORMAT_LIST_H
#define RG_CODEC_FORMAT_LIST_H

extern const char format_list[];

/* The list without its first comma and space. */
#define FORMAT_LIST (format_list + 2)

#endif
