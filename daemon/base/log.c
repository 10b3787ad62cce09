/* The log: see log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static pthread_mutex_t log_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the five below; leaf rank: nothing is taken under it */
static enum log_level lowest = LOG_LEVEL_INFO;
static enum log_level last_level;
static char last_text[LINE_BYTES];
static unsigned long repeats;
static log_sink *sink;

static const char *const level_names[] = {"debug", "info", "warning", "error"};

/* How many bytes of `data` are one UTF-8 character that may stand in a line; 0: none. */
static size_t character_bytes(const unsigned char *data, size_t bytes)
{
    if (data[0] < 128)
        return data[0] >= 32 && data[0] != 127;
    size_t length = data[0] >= 0xf0 ? 4 : data[0] >= 0xe0 ? 3 : 2;
    if (data[0] < 0xc2 || data[0] > 0xf4 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((data[i] & 0xc0) != 0x80)
            return 0;
    /* Longer than it needs to be, half of a pair, beyond the last one, or a control character. */
    bool is_odd = (data[0] == 0xe0 && data[1] < 0xa0) || (data[0] == 0xed && data[1] > 0x9f) ||
                  (data[0] == 0xf0 && data[1] < 0x90) || (data[0] == 0xf4 && data[1] > 0x8f) ||
                  (data[0] == 0xc2 && data[1] < 0xa0);
    return is_odd ? 0 : length;
}

/* Names of files, samples and clients are any bytes; a log is text. */
static void clean(char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        size_t length = character_bytes((unsigned char *)line + i, bytes - i);
        if (length == 0)
            line[i] = '?';
        i += length > 0 ? length : 1;
    }
}

static void put_stderr(enum log_level level, const char *text)
{
    char line[LINE_BYTES + 64];
    int n = snprintf(line, sizeof line, "spdld: %s: %s\n", level_names[level], text);
    if (n <= 0)
        return;
    size_t bytes = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    ssize_t ignored = write(STDERR_FILENO, line, bytes); /* a log that cannot be written is lost */
    (void)ignored;
}

static void put(enum log_level level, const char *text, const struct log_field *fields)
{
    char line[LINE_BYTES];
    snprintf(line, sizeof line, "%s", text);
    clean(line, strlen(line));
    if (sink)
        sink(level, line, fields);
    else
        put_stderr(level, line);
}

void log_level_set(enum log_level level)
{
    pthread_mutex_lock(&log_lock);
    lowest = level;
    pthread_mutex_unlock(&log_lock);
}

void log_sink_set(log_sink *new_sink)
{
    pthread_mutex_lock(&log_lock);
    sink = new_sink;
    pthread_mutex_unlock(&log_lock);
}

__attribute__((format(printf, 3, 0))) static void
say(enum log_level level, const struct log_field *fields, const char *format, va_list args)
{
    char text[LINE_BYTES];
    vsnprintf(text, sizeof text, format, args);
    pthread_mutex_lock(&log_lock);
    if (level >= lowest) {
        if (level == last_level && strcmp(text, last_text) == 0) {
            repeats++;
        } else {
            if (repeats > 0) {
                char note[64];
                snprintf(note, sizeof note, "the line above came %lu more times", repeats);
                put(last_level, note, NULL);
            }
            repeats = 0;
            last_level = level;
            memcpy(last_text, text, sizeof last_text);
            put(level, text, fields);
        }
    }
    pthread_mutex_unlock(&log_lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(level, NULL, format, args);
    va_end(args);
}

void log_event(enum log_level level, const struct log_field *fields, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(level, fields, format, args);
    va_end(args);
}
