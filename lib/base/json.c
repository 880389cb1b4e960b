/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json.h"

#include <stdlib.h>
#include <string.h>

json_t *json_any(const char *text)
{
	json_t *out = json_string(text);
	char *ascii;

	if (out)
		return out;
	ascii = strdup(text);
	if (!ascii)
		return json_null();
	for (char *p = ascii; *p; p++)
		if ((unsigned char)*p >= 128)
			*p = '?';
	out = json_string(ascii);
	free(ascii);
	return out;
}

const char *json_line(json_t *value, struct arena *a)
{
	char *text = json_dumps(value, JSON_COMPACT);
	const char *copy;

	json_decref(value);
	if (!text)
		arena_exhausted();
	copy = arena_printf(a, "%s\n", text);
	free(text);
	return copy;
}
