/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, enum code code, const char *fmt, ...)
{
	va_list ap;

	e->code = code;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, enum code code, const char *fmt, ...)
{
	const char *why = strerror(errno);
	char what[sizeof(e->text) - 80];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return err_set(e, code, "%s: %.70s", what, why);
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char front[sizeof(e->text)];
	size_t cause = strlen(e->text), room = sizeof(e->text) - 1 - cause;
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(front, sizeof(front), fmt, ap);
	va_end(ap);
	len = strnlen(front, room);
	memmove(e->text + len, e->text, cause + 1);
	memcpy(e->text, front, len);
	return -1;
}

const char *plural(long long n)
{
	return n == 1 ? "" : "s";
}
