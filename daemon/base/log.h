/* One log function with levels. Lines go to standard error as "spdld: LEVEL: words". Rooms below
 * pipeline do not log. A line that repeats word for word is counted and said once, with its count
 * when another line follows. Any thread may log. */
#ifndef SPDLD_BASE_LOG_H
#define SPDLD_BASE_LOG_H

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* Lines below the level are dropped. The default is LOG_LEVEL_INFO. */
void log_level_set(enum log_level level);

/* Writes one line. Cuts it at 1,024 bytes; bytes below 32 are written as '?'. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
