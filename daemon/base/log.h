/* One log function with levels. Lines go to standard error as "spdld: LEVEL: words", or to the sink
 * that main has set (the journal). Rooms below pipeline do not log. A line that repeats word for
 * word is counted and said once, with its count when another line follows. Any thread may log. */
#ifndef SPDLD_BASE_LOG_H
#define SPDLD_BASE_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* A field beside a line's words, for sinks that keep fields. A list ends with a NULL name. */
struct log_field {
    const char *name;  /* capitals and underscores */
    const char *value; /* borrowed during the call */
};

/* What happened, for those who look for it by machine: the value of a field MESSAGE_ID. They never
 * change; docs/operations.md says what to do at each. */
#define LOG_ID "MESSAGE_ID"
#define LOG_ID_STARTED "be4e184a3f9b4e7cbe7c9984acb95723"
#define LOG_ID_STOPPING "642fc7a7009b4e329ef858dae0555394"
#define LOG_ID_RELOADED "0f7023efa9b14d7e9ef26a1794ef3471"
#define LOG_ID_RELOAD_REFUSED "46f1160dc8cc450b8ec8efe66852597d"
#define LOG_ID_WORKER_DIED "bee84a37be5d4a159837fb4d43642a08"
#define LOG_ID_SAMPLE_FAILED "fc6f249609f74b82bfb293ab4051759d"
#define LOG_ID_CLIENT_REFUSED "553acca5763549e38ddb7f07d2f62940"
#define LOG_ID_DATASET_LISTED "110259bfbec74e2c94a3515595552c0b"

/* Lines below the level are dropped. The default is LOG_LEVEL_INFO. */
void log_level_set(enum log_level level);

/* Takes every line instead of standard error. fields may be NULL. Called under the log's lock: it
 * logs nothing. NULL: standard error again. */
typedef void log_sink(enum log_level level, const char *text, const struct log_field *fields);
void log_sink_set(log_sink *sink);

/* Writes one line. Cuts it at 1,024 bytes; control characters and what is not UTF-8 are written as
 * '?'. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with fields, borrowed during the call. */
void log_event(enum log_level level, const struct log_field *fields, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
