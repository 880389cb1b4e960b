/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads and writes, what must be on the disk, folders. */
#ifndef CKPT_IO_H
#define CKPT_IO_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "lib/base/arena.h"

/*
 * All N bytes at offset AT.  A failed write is CODE_STORAGE, a failed or
 * short read CODE_CKPT.
 */
int io_write(int fd, const void *data, size_t n, int64_t at, const char *path,
	     struct err *e);
int io_read(int fd, void *data, size_t n, int64_t at, const char *path,
	    struct err *e);

/* CRC gets the N bytes at offset AT added. */
int io_checksum(int fd, int64_t at, int64_t n, const char *path, uint32_t *crc,
		struct err *e);

/*
 * Take the disk space of a file of SIZE bytes; where the file system cannot
 * do that, nothing.  A full disk says how much was needed.
 */
int io_reserve(int fd, int64_t size, const char *path, struct err *e);

/*
 * END bytes of a file are written: ask the kernel to begin with what has
 * gathered since *STARTED, so that the disk works meanwhile.
 */
void io_start(int fd, int64_t *started, int64_t end);

/*
 * FROM as the new file TO, on the disk.  What cannot be read of FROM is
 * CODE_CKPT.
 */
int io_copy(const char *from, const char *to, struct err *e);

/* errno of a failed write to PATH as an error. */
int io_failed(const char *what, const char *path, struct err *e);

/* Bytes free for us in the file system of DIR; -1 where it will not say. */
int64_t io_free(const char *dir);

/* A new file with this text, on the disk; an old one is replaced at once. */
int io_write_text(const char *path, const char *text, struct err *e);

/* A whole text file of at most MAX bytes; CODE_CKPT. */
int io_read_text(const char *path, size_t max, struct arena *a, char **text,
		 struct err *e);

/* What a folder holds is on the disk. */
int io_sync_dir(const char *path, struct err *e);

/* Remove a file or a folder with all in it; one that is gone is no error. */
void io_remove(const char *path);

/* The latest change of a folder or of anything in it; 0 if it is gone. */
time_t io_changed(const char *path);

#endif
