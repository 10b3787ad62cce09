/* Are the samples of the datasets where the configuration says? For the mains alone. */
#ifndef SPDLD_MAIN_ROOTS_H
#define SPDLD_MAIN_ROOTS_H

#include "config/config.h"

/* Can this user read the roots and shards? Says on standard error which it cannot, with their
 * places in the configuration, and returns how many. Blocks. */
int main_roots_check(const struct config *config);

/* Warns in the log of roots that do not exist. Returns at once: they are looked at by a thread of
 * its own, since a file system that does not answer must not hold up a start. */
void main_roots_warn(const struct config *config);

#endif
