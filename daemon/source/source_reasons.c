/* Counts the reasons for which samples were left out: see source_reasons.h. */
#include "source/source_reasons.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    REASONS_MAX = 8,
    FAULTS_MAX = 1000000, /* that are looked at */
    TEXT_BYTES = 224,     /* of one reason */
    PATH_BYTES = 160
};

struct reason {
    const char *text; /* borrowed from the source */
    uint64_t count;
};

/* A sentence without the place that it begins with. */
static const char *without_place(const char *message)
{
    const char *colon = strncmp(message, "line ", 5) == 0 ? strstr(message, ": ") : NULL;
    return colon ? colon + 2 : message;
}

/* At most `room` - 1 bytes of a text, which ends with a whole word. */
static void cut_at_word(char *into, size_t room, const char *text)
{
    if (strlen(text) < room) {
        snprintf(into, room, "%s", text);
        return;
    }
    snprintf(into, room - 4, "%s", text);
    char *space = strrchr(into, ' ');
    size_t used = space ? (size_t)(space - into) : strlen(into);
    snprintf(into + used, room - used, " ...");
}

/* The most frequent ones first. Returns how many there are. */
static uint32_t gather(const struct source *source, struct reason reasons[REASONS_MAX])
{
    uint64_t faults = source->counts.broken < FAULTS_MAX ? source->counts.broken : FAULTS_MAX;
    uint32_t count = 0;
    for (uint64_t i = 0; i < faults; i++) {
        struct source_fault fault;
        source_fault(source, i, &fault);
        const char *text = without_place(fault.message);
        uint32_t n = 0;
        while (n < count && strcmp(reasons[n].text, text) != 0)
            n++;
        if (n == REASONS_MAX)
            continue;
        if (n == count)
            reasons[count++] = (struct reason){.text = text};
        reasons[n].count++;
        for (; n > 0 && reasons[n].count > reasons[n - 1].count; n--) {
            struct reason moved = reasons[n];
            reasons[n] = reasons[n - 1];
            reasons[n - 1] = moved;
        }
    }
    return count;
}

void source_reasons_note(struct source *source, const char *what)
{
    struct source_counts *counts = &source->counts;
    struct reason reasons[REASONS_MAX];
    struct source_fault first;
    char place[PATH_BYTES + 64], text[TEXT_BYTES];
    if (counts->broken == 0)
        return;
    source_fault(source, 0, &first);
    size_t path_bytes = strlen(first.path);
    bool is_long = path_bytes >= PATH_BYTES;
    snprintf(place, sizeof place, "; the first: %s%s at byte %" PRIu64, is_long ? "..." : "",
             first.path + (is_long ? path_bytes - PATH_BYTES + 4 : 0), first.offset);
    uint32_t reason_count = gather(source, reasons);
    if (reason_count == 1) {
        cut_at_word(text, sizeof text, first.message);
        snprintf(counts->note, sizeof counts->note, "%" PRIu64 " %sleft out as broken%s: %s",
                 counts->broken, what, place, text);
        return;
    }
    size_t room = sizeof counts->note - strlen(place) - 32; /* for what is said behind them */
    uint64_t said = 0;
    size_t used = (size_t)snprintf(counts->note, room, "%" PRIu64 " %sleft out as broken",
                                   counts->broken, what);
    for (uint32_t n = 0; n < reason_count && used + 48 < room; n++) {
        size_t left = room - used - 24; /* digits and what is between */
        cut_at_word(text, left < sizeof text ? left : sizeof text, reasons[n].text);
        used += (size_t)snprintf(counts->note + used, room - used, "%s %" PRIu64 ": %s",
                                 n ? ";" : ":", reasons[n].count, text);
        said += reasons[n].count;
    }
    if (said < counts->broken)
        used += (size_t)snprintf(counts->note + used, sizeof counts->note - used,
                                 "; %" PRIu64 ": other", counts->broken - said);
    snprintf(counts->note + used, sizeof counts->note - used, "%s", place);
}
