/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static struct {
	const char *program;
	int rank;
	enum log_level level;
} self = {"trisect", -1, LOG_INFO};

void log_open(const char *program, int rank, enum log_level level)
{
	self.program = program;
	self.rank = rank;
	self.level = level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const words[] = {"error: ", "warning: ", "", ""};
	char line[2048];
	size_t len;
	va_list ap;

	if (level > self.level)
		return;
	if (self.rank >= 0)
		len = (size_t)snprintf(line, sizeof(line), "%s[%d]: %s",
				       self.program, self.rank, words[level]);
	else
		len = (size_t)snprintf(line, sizeof(line), "%s: %s",
				       self.program, words[level]);
	va_start(ap, fmt);
	len += (size_t)vsnprintf(line + len, sizeof(line) - len, fmt, ap);
	va_end(ap);
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}
