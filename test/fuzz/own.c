/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of our own configs. */
#include "test/fuzz/fuzz.h"

FUZZ("own")
