/* SPDX-License-Identifier: Apache-2.0 */
/* One job at a time in a run's folder. */
#ifndef TRAIN_OWNER_H
#define TRAIN_OWNER_H

#include "lib/base/err.h"

/*
 * Take DIR (made if need be) for this process until owner_close or its end,
 * however it ends: an flock on DIR/.owner, which says host and pid.  *fd is
 * what holds it.  Refused (CODE_LAUNCH) while another process has it; a file
 * system without locks is trusted.
 */
int owner_open(int *fd, const char *dir, const char *host, struct err *e);
void owner_close(int *fd);

#endif
