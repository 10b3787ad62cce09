/* The log: see log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static pthread_mutex_t log_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the four below; leaf rank: nothing is taken under it */
static enum log_level lowest = LOG_LEVEL_INFO;
static enum log_level last_level;
static char last_text[LINE_BYTES];
static unsigned long repeats;

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static void put(enum log_level level, const char *text)
{
    char line[LINE_BYTES + 64];
    int n = snprintf(line, sizeof line, "spdld: %s: %s\n", level_names[level], text);
    if (n <= 0)
        return;
    size_t bytes = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    for (size_t i = 0; i + 1 < bytes; i++)
        if ((unsigned char)line[i] < 32)
            line[i] = '?';
    ssize_t ignored = write(STDERR_FILENO, line, bytes); /* a log that cannot be written is lost */
    (void)ignored;
}

void log_level_set(enum log_level level)
{
    pthread_mutex_lock(&log_lock);
    lowest = level;
    pthread_mutex_unlock(&log_lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&log_lock);
    if (level >= lowest) {
        if (level == last_level && strcmp(text, last_text) == 0) {
            repeats++;
        } else {
            if (repeats > 0) {
                char note[64];
                snprintf(note, sizeof note, "the line above came %lu more times", repeats);
                put(last_level, note);
            }
            repeats = 0;
            last_level = level;
            memcpy(last_text, text, sizeof last_text);
            put(level, text);
        }
    }
    pthread_mutex_unlock(&log_lock);
}
