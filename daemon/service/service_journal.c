/* The journal as sink of the log: a line with its priority, and the fields beside it. Any role,
 * under the log's lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "base/log.h"
#include "service/service.h"

enum { FIELDS_MAX = 12, FIELD_BYTES = 1200 };

static int priority_of(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return LOG_DEBUG;
    case LOG_LEVEL_INFO:
        return LOG_INFO;
    case LOG_LEVEL_WARNING:
        return LOG_WARNING;
    case LOG_LEVEL_ERROR:
        break;
    }
    return LOG_ERR;
}

static void journal_put(enum log_level level, const char *text, const struct log_field *fields)
{
    static char lines[FIELDS_MAX][FIELD_BYTES]; /* under the log's lock */
    struct iovec parts[FIELDS_MAX];
    int count = 0;
    const char number[2] = {(char)('0' + priority_of(level)), 0};
    const struct log_field always[] = {{"MESSAGE", text},
                                       {"PRIORITY", number},
                                       {"SYSLOG_IDENTIFIER", "spdld"},
                                       {"SPDL_VERSION", SPDL_VERSION},
                                       {NULL, NULL}};
    const struct log_field *const lists[] = {always, fields};
    for (size_t l = 0; l < 2; l++)
        for (const struct log_field *at = lists[l]; at && at->name && count < FIELDS_MAX; at++) {
            int bytes = snprintf(lines[count], FIELD_BYTES, "%s=%s", at->name, at->value);
            if (bytes <= 0)
                continue;
            parts[count].iov_base = lines[count];
            parts[count].iov_len = bytes < FIELD_BYTES ? (size_t)bytes : FIELD_BYTES - 1;
            count++;
        }
    sd_journal_sendv(parts, count); /* a log that cannot be written is lost */
}

/* $JOURNAL_STREAM names the stream that the manager connected standard error to: where it is
 * another one by now, somebody wants the lines elsewhere. */
void service_log(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char mine[64];
    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return;
    snprintf(mine, sizeof mine, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    if (strcmp(mine, stream) == 0)
        log_sink_set(journal_put);
}
