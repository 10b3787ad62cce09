/* What was left out of a source and why, as one sentence. Private to the room. */
#ifndef SPDLD_SOURCE_REASONS_H
#define SPDLD_SOURCE_REASONS_H

#include "source/source.h"

/* Makes the note of a source that has faults: how many `what` are left out, for which reasons, how
 * often each, and where the first is. */
void source_reasons_note(struct source *source, const char *what);

#endif
