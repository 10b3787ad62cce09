/* Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3" (2011). A pure function from counter and key to four words: a draw
 * is named by its numbers, so it can be had again anywhere without any state. Any thread.
 *
 * Ten rounds. A round takes counter words c0 … c3 and key words k0, k1 and gives, with the 64-bit
 * products A = 0xD2511F53 * c0 and B = 0xCD9E8D57 * c2,
 *   c0' = high(B) ^ c1 ^ k0,  c1' = low(B),  c2' = high(A) ^ c3 ^ k1,  c3' = low(A);
 * between rounds k0 grows by 0x9E3779B9 and k1 by 0xBB67AE85, modulo 2^32. */
#ifndef SPDLD_BASE_PHILOX_H
#define SPDLD_BASE_PHILOX_H

#include <stdint.h>

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4]);

#endif
