/* A batch as pull prints it: a line of JSON, or a line for people. */
#ifndef SPDL_CTL_LINE_H
#define SPDL_CTL_LINE_H

#include "client/ctl/ctl_text.h"
#include "spdl/client.h"

struct ctl_line_options {
    bool hash;  /* XXH3-64 of every field, and of each of its rows */
    bool draws; /* crop and flip of every row */
};

/* Adds the batch and a line end. 0, or a negative errno of the client library. */
int ctl_line_json(const struct spdl_batch *batch, const struct ctl_line_options *options,
                  uint64_t wait_ns, struct ctl_text *text);
int ctl_line_people(const struct spdl_batch *batch, const struct ctl_line_options *options,
                    uint64_t wait_ns, struct ctl_text *text);

/* "uint8"; "unknown" for a number outside the list. */
const char *ctl_dtype_name(enum spdl_dtype dtype);

#endif
