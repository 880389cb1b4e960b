/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of files of arguments. */
#include "test/fuzz/fuzz.h"

FUZZ("args")
