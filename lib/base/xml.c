/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/xml.h"

#include <string.h>

#include "lib/base/utf8.h"

/* Whether XML 1.0 has the character of N bytes at P. */
static int is_allowed(const unsigned char *p, size_t n)
{
	if (n == 1)
		return *p >= ' ' || *p == '\t' || *p == '\n' || *p == '\r';
	return n != 3 || p[0] != 0xef || p[1] != 0xbf || p[2] < 0xbe;
}

void xml_put(FILE *f, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	const unsigned char *end = p + strlen(text);
	size_t n;

	for (; p < end; p += n ? n : 1) {
		n = utf8_length(p, end);
		if (!n || !is_allowed(p, n))
			fputc('?', f);
		else if (*p == '&')
			fputs("&amp;", f);
		else if (*p == '<')
			fputs("&lt;", f);
		else if (*p == '>')
			fputs("&gt;", f);
		else if (*p == '"')
			fputs("&quot;", f);
		else if (*p == '\r')
			fputs("&#13;", f);
		else
			fwrite(p, 1, n, f);
	}
}
