/* SPDX-License-Identifier: Apache-2.0 */
/* The page is show_html.html, with the drawing and the numbers put in. */
#include <string.h>

#include "lib/plan/show.h"

/* show_html.html, from its first byte to a 0, as the assembler reads it. */
extern const char show_html_page[];
__asm__(".pushsection .rodata\n"
	".global show_html_page\n"
	"show_html_page:\n"
	".incbin \"lib/plan/show_html.html\"\n"
	".byte 0\n"
	".popsection\n");

/* What of the page stands before MARK; returns what stands behind it. */
static const char *put_until(FILE *f, const char *page, const char *mark)
{
	const char *end = strstr(page, mark);

	fwrite(page, 1, (size_t)(end - page), f);
	return end + strlen(mark);
}

void show_html(FILE *f, const struct show *s)
{
	const char *rest = put_until(f, show_html_page, "<!--drawing-->");

	show_svg(f, s);
	rest = put_until(f, rest, "<!--numbers-->");
	show_json(f, s, -1);
	fputs(rest, f);
}
