/* The classes of samples, as the rooms between source and sink name them. The list itself lies
 * where ranks see it too. */
#ifndef SPDLD_ITEM_CLASS_H
#define SPDLD_ITEM_CLASS_H

#include "shm/shm_class.h" /* exception: layers: item may include shm/shm_class.h, so that there is one list and not two */

#endif
