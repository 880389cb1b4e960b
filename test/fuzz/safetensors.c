/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of headers of safetensors. */
#include "test/fuzz/fuzz.h"

FUZZ("safetensors")
