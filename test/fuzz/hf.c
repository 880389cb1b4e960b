/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz the reader of config.json of Hugging Face. */
#include "test/fuzz/fuzz.h"

FUZZ("hf")
