/* Letters for the sheets of preview. */
#ifndef SPDL_CTL_FONT_H
#define SPDL_CTL_FONT_H

#include <stdbool.h>
#include <stdint.h>

enum { CTL_FONT_COLUMNS = 5, CTL_FONT_ROWS = 8, CTL_FONT_ADVANCE = 6 };

/* Is there ink at this dot of the letter? What is not printable ASCII looks like a question mark.
 */
bool ctl_font_dot(char letter, unsigned row, unsigned column);

#endif
