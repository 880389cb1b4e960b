/* SPDX-License-Identifier: Apache-2.0 */
/* A deadline around library calls that have none of their own. */
#ifndef TRAIN_WITHIN_H
#define TRAIN_WITHIN_H

/*
 * Call FN(ARG) in a thread of its own (all signals blocked) and wait for it
 * at most SECONDS.  0: it returned; -1: it has not, or there was no thread:
 * it may still be running, so ARG must stay valid for ever and the process
 * should end soon.
 */
int within(double seconds, void (*fn)(void *arg), void *arg);

#endif
