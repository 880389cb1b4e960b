/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of YAML. */
#include "test/fuzz/fuzz.h"

FUZZ("yaml")
