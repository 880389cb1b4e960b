/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of shell and batch scripts. */
#include "test/fuzz/fuzz.h"

FUZZ("shell")
