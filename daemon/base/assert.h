/* ASSERT stays in release builds and is for our own bugs only: never for bytes from a disk, a
 * socket or memory another process can write. */
#ifndef SPDLD_BASE_ASSERT_H
#define SPDLD_BASE_ASSERT_H

#define ASSERT(condition) ((condition) ? (void)0 : assert_fail(#condition, __FILE__, __LINE__))

_Noreturn void assert_fail(const char *condition, const char *file, int line);

#endif
