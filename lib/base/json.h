/* SPDX-License-Identifier: Apache-2.0 */
/* What every writer of JSON needs beside jansson. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "lib/base/arena.h"

/* Any bytes as a string: of a text that is no UTF-8, what is no ASCII is '?'. */
json_t *json_any(const char *text);

/* VALUE in one line with its end; VALUE is given away. */
const char *json_line(json_t *value, struct arena *a);

#endif
