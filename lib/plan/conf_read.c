/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/conf_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

int conf_open(struct conf_file *f, const char *file)
{
	bool input = !strcmp(file, "-");

	*f = (struct conf_file){.fd = -1};
	f->fd = input ? dup(STDIN_FILENO)
		      : open(file,
			     O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (f->fd < 0)
		return -1;
	if (fstat(f->fd, &f->st) || (errno = EISDIR, S_ISDIR(f->st.st_mode))) {
		close(f->fd);
		return -1;
	}
	if (!input)
		fcntl(f->fd, F_SETFL, 0);
	return 0;
}

static int read_all(struct conf_file *f, size_t room)
{
	ssize_t got;

	while (f->len < room &&
	       (got = read(f->fd, f->text + f->len, room - f->len)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		f->len += (size_t)got;
	}
	errno = EFBIG;
	return f->len == room ? -1 : 0;
}

int conf_read(struct conf_file *f, size_t max, struct arena *a)
{
	size_t room = max + 1;
	int bad, why;

	if (S_ISREG(f->st.st_mode) && f->st.st_size > 0 &&
	    (uintmax_t)f->st.st_size < room)
		room = (size_t)f->st.st_size + 1;
	f->text = arena_alloc(a, room + 1, 1);
	bad = read_all(f, room);
	why = errno;
	close(f->fd);
	errno = why;
	f->text[f->len] = 0;
	return bad;
}

const char *conf_mark(const char *text, size_t len)
{
	static const struct {
		const char *bytes, *what;
	} marks[] = {
		{"\xef\xbb\xbf", "a UTF-8 byte order mark (EF BB BF): save "
				 "the file as UTF-8 without one"},
		{"\xff\xfe", "a UTF-16 byte order mark (FF FE): save the file "
			     "as UTF-8"},
		{"\xfe\xff", "a UTF-16 byte order mark (FE FF): save the file "
			     "as UTF-8"},
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		size_t n = strlen(marks[i].bytes);

		if (len >= n && !memcmp(text, marks[i].bytes, n))
			return marks[i].what;
	}
	return NULL;
}
