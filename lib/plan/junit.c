/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/junit.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/xml.h"

void junit_open(struct junit *j)
{
	*j = (struct junit){0};
	j->f = open_memstream(&j->text, &j->len);
	if (!j->f)
		arena_exhausted();
}

/* The line that sums up is the last one. */
static const char *last_line(const char *text)
{
	const char *line = text;

	for (; *text; text++)
		if (*text == '\n' && text[1])
			line = text + 1;
	return line;
}

static void put_fault(struct junit *j, const char *element, const char *type,
		      const char *message, const char *all)
{
	char *line = strndup(message, strcspn(message, "\n"));

	if (!line)
		arena_exhausted();
	fprintf(j->f, "<%s type=\"%s\" message=\"", element, type);
	xml_put(j->f, line);
	fputs("\">", j->f);
	xml_put(j->f, all);
	fprintf(j->f, "</%s>\n", element);
	free(line);
}

void junit_add(struct junit *j, const char *file, const struct outcome *out)
{
	const char *all = out->plain ? out->plain : "";
	const char *trouble = out->trouble.text;

	j->tests++;
	fputs("<testcase classname=\"cfg-finalize\" name=\"", j->f);
	xml_put(j->f, file);
	fputs("\">\n", j->f);
	if (*trouble) {
		j->errors++;
		put_fault(j, "error", "output", trouble, trouble);
	} else if (!out->readable) {
		j->errors++;
		put_fault(j, "error", "unreadable", last_line(all), all);
	} else if (!out->valid) {
		j->failures++;
		put_fault(j, "failure", "invalid", last_line(all), all);
	} else {
		fputs("<system-out>", j->f);
		xml_put(j->f, all);
		fputs("</system-out>\n", j->f);
	}
	fputs("</testcase>\n", j->f);
}

const char *junit_close(struct junit *j, struct arena *a)
{
	const char *out;

	if (fclose(j->f))
		arena_exhausted();
	out = arena_printf(a,
			   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			   "<testsuites>\n"
			   "<testsuite name=\"cfg-finalize\" tests=\"%zu\" "
			   "failures=\"%zu\" errors=\"%zu\">\n"
			   "%s</testsuite>\n</testsuites>\n",
			   j->tests, j->failures, j->errors, j->text);
	free(j->text);
	return out;
}
